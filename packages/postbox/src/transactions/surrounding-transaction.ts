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

/** For how long the database may take to say which session a transaction runs in. */
const askMs = 1_000;

const rules = {
  isolation: oneOf("read committed", "repeatable read", "serializable"),
  signal: signalRule,
  startsWithStatement: flag,
};

/** The transactions that a store opens itself. */
export interface SurroundingTransactions<Tx> extends Pick<Store<Tx>, "transaction" | "current"> {
  /** Runs `task` once `tx` has committed, and not otherwise; false where `tx` is not the one that surrounds the caller. */
  afterCommit(tx: Tx, task: () => void): boolean;
}

/** How transactions are begun and ended. A store without SQL gives `begin` alone. */
export type TransactionOpener<Tx> = Pick<TransactionLibrary<Tx>, "begin" | "session" | "refuseUnawaited">;

/**
 * `transaction` and `current` of a store whose transactions are those of a library. What `transaction` opens surrounds
 * everything that its work awaits or starts, until it has ended.
 *
 * A transaction inside another one of the same store is an error: on its own connection it could not commit together
 * with the outer one, and would wait for ever where the pool has no connection left.
 */
export function surroundingTransactions<Tx>(
  storeName: string,
  library: TransactionOpener<Tx>,
  terminate: ((session: SessionId) => Promise<void>) | undefined,
): SurroundingTransactions<Tx> {
  const surrounding = createSurrounding<Held<Tx>>();

  /** How to end a transaction that has just begun, whatever runs in it then. Never rejects: what is not ended here, its library rolls back. */
  function forceOn(tx: Tx): (() => Promise<void>) | undefined {
    const session = terminate && library.session?.(tx);
    if (session === undefined) return undefined;
    return async () => {
      // Asked for on its own connection, which may be dead.
      const id = await Promise.race([session.id, sleep(askMs, undefined, { ref: false })]);
      if (id !== undefined) await terminate?.(id).catch(() => {});
      session.close?.();
    };
  }

  /** What a transaction started may outlive it and still run in its context: that one is over, not current. */
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
            // The caller gave up while the pool was busy. The connection that comes now is sound: the library rolls back and returns it.
            if (bounded?.over) return Promise.reject(new Abandoned(signal?.reason, false));
            const held = { tx, open: true, afterCommit };
            const ended = () => {
              held.open = false;
            };
            const run = () => surrounding.run(held, () => withAllFinished(tx, work, library));
            const force = bounded && forceOn(tx);
            // Each promise costs every message that is handled, so there is one at most.
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
