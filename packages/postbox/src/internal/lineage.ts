import { AsyncLocalStorage } from "node:async_hooks";

/** Where a message comes from: what every message published meanwhile carries on. */
export type Lineage = {
  readonly correlationid: string;
  readonly causationid: string;
};

const scopes = new AsyncLocalStorage<{ lineage: Lineage | undefined }>();

/**
 * `lineage` is current as long as `work` runs, and not in what outlives it: a timer, or a connection that is made on
 * first use and kept, has little to do with the message that happened to start it.
 */
export async function withLineage<R>(lineage: Lineage, work: () => Promise<R>): Promise<R> {
  const scope: { lineage: Lineage | undefined } = { lineage };
  try {
    return await scopes.run(scope, work);
  } finally {
    scope.lineage = undefined;
  }
}

export function currentLineage(): Lineage | undefined {
  return scopes.getStore()?.lineage;
}
