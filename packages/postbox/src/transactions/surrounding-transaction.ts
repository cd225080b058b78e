import { setTimeout as sleep } from "node:timers/promises";
import { ConfigError } from "../errors.js";
import { createSurrounding } from "../internal/surrounding.js";
import { withAllFinished } from "../internal/unfinished.js";
import { checkOptions, flag, oneOf, signal as signalRule } from "../options.js";
import type { SessionId, Store, TransactionLibrary } from "../store.js";
import { closedError } from "./connection-lost.js";
import { Abandoned, type Bounded, untilAborted } from "./until-aborted.js";

interface Held<Tx> {
  readonly tx: Tx;
  open: boolean;
  readonly afterCommit: Set<() => void>;
}

/** How long to wait for the id of a transaction's session. */
const askMs = 1_000;

const rules = {
  isolation: oneOf("read committed", "repeatable read", "serializable"),
  signal: signalRule,
  startsWithStatement: flag,
};

/** `transaction` and `current` of a store, and what runs after a commit. */
export interface SurroundingTransactions<Tx> extends Pick<Store<Tx>, "transaction" | "current"> {
  /**
   * Runs `task` after `tx` has committed. Returns false if `tx` is not the caller's surrounding transaction; then
   * `task` never runs.
   */
  afterCommit(tx: Tx, task: () => void): boolean;
}

/** How transactions begin and end. A store without SQL provides `begin` only. */
export type TransactionOpener<Tx> = Pick<TransactionLibrary<Tx>, "begin" | "session" | "refuseUnawaited">;

/**
 * `transaction` and `current` of a store, on the transactions of a library. A transaction surrounds everything that its
 * work awaits or starts, until it ends.
 *
 * A nested transaction of the same store is an error. On its own connection it could not commit together with the outer
 * one, and it would wait for ever if the pool has no free connection.
 *
 * @example
 * ```ts
 * const transactions = surroundingTransactions("myStore", { begin }, undefined);
 * await transactions.transaction(async (tx) => transactions.current() === tx);
 * ```
 */
export function surroundingTransactions<Tx>(
  storeName: string,
  library: TransactionOpener<Tx>,
  terminate: ((session: SessionId) => Promise<void>) | undefined,
): SurroundingTransactions<Tx> {
  const surrounding = createSurrounding<Held<Tx>>();

  /** How to end, by force, a transaction that has just begun. Never rejects: if this fails, the library rolls back. */
  function forceOn(tx: Tx): (() => Promise<void>) | undefined {
    const session = terminate && library.session?.(tx);
    if (session === undefined) return undefined;
    return async () => {
      // The query for the id runs on the transaction's own connection, which may be dead.
      const id = await Promise.race([session.id, sleep(askMs, undefined, { ref: false })]);
      if (id !== undefined) await terminate?.(id).catch(() => {});
      session.close?.();
    };
  }

  /**
   * Work that a transaction started may outlive it and still run in its context. Then there is no current transaction.
   */
  const current = (): Tx | undefined => {
    const held = surrounding.get();
    return held?.open ? held.tx : undefined;
  };

  return {
    current,
    afterCommit(tx, task) {
      const held = surrounding.get();
      if (held?.tx !== tx || !held.open) return false;
      held.afterCommit.add(task);
      return true;
    },
    async transaction(work, options = {}) {
      checkOptions("transaction", options, rules);
      if (current() !== undefined) {
        throw new ConfigError(
          "transaction-nested",
          `a transaction of ${storeName} is open here already, and one inside it could not commit with it; ` +
            "use currentTransaction(store)",
        );
      }
      const afterCommit = new Set<() => void>();
      const { signal } = options;
      const begin = (bounded?: Bounded) =>
        library.begin(
          (tx) => {
            // The signal was aborted while the pool was busy. This connection is sound, so the library rolls back and
            // returns it.
            if (bounded?.over) return Promise.reject(new Abandoned(signal?.reason, false));
            const held = { tx, open: true, afterCommit };
            const ended = () => {
              held.open = false;
            };
            const run = () => surrounding.run(held, () => withAllFinished(tx, work, library));
            const force = bounded && forceOn(tx);
            // Every handled message pays for each promise, so there is at most one.
            return bounded && force ? bounded.within(run, force, ended) : run().finally(ended);
          },
          bounded === undefined ? options : { ...options, connected: bounded.connected },
        );
      let result: Awaited<ReturnType<typeof work>>;
      try {
        result = await (signal === undefined ? begin() : untilAborted(signal, begin));
      } catch (error) {
        throw error instanceof Abandoned ? error.reason : closedError(storeName, error);
      }
      for (const task of afterCommit) task();
      return result;
    },
  };
}
