import { AsyncLocalStorage } from "node:async_hooks";

/** The origin of a message, which every message that it leads to carries on. */
export type Lineage = {
  readonly correlationid: string;
  readonly causationid: string;
};

const scopes = new AsyncLocalStorage<{ lineage: Lineage | undefined }>();

/**
 * Sets `lineage` while `work` runs. It does not apply to what outlives `work`, such as a timer or a connection that is
 * opened on first use: that has little to do with the message that started it.
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
