import { AsyncLocalStorage } from "node:async_hooks";

/** Where a message comes from: what every message published meanwhile carries on. */
export interface Lineage {
  readonly correlationid: string;
  readonly causationid: string;
}

const lineage = new AsyncLocalStorage<Lineage>();

export function withLineage<R>(current: Lineage, work: () => Promise<R>): Promise<R> {
  return lineage.run(current, work);
}

export function currentLineage(): Lineage | undefined {
  return lineage.getStore();
}
