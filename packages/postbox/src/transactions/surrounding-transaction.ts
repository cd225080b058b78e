import { AsyncLocalStorage } from "node:async_hooks";
import { ConfigError } from "../errors.js";
import { checkOptions, oneOf } from "../options.js";
import type { Store, TransactionLibrary } from "../store.js";

const isolation = oneOf("read committed", "repeatable read", "serializable");

/**
 * `transaction` and `current` of a store whose transactions are those of a library. What `transaction` opens surrounds
 * everything that its work awaits or starts, until it has ended.
 *
 * A transaction inside another one of the same store is an error: on its own connection it could not commit together
 * with the outer one, and would wait for ever where the pool has no connection left.
 */
export function surroundingTransactions<Tx>(
  storeName: string,
  library: TransactionLibrary<Tx>,
): Pick<Store<Tx>, "transaction" | "current"> {
  const surrounding = new AsyncLocalStorage<{ readonly tx: Tx; open: boolean }>();

  /** What a transaction started may outlive it and still run in its context: that one is over, not current. */
  const current = (): Tx | undefined => {
    const held = surrounding.getStore();
    return held?.open ? held.tx : undefined;
  };

  return {
    current,
    async transaction(work, options = {}) {
      checkOptions("transaction", options, { isolation });
      if (current() !== undefined) {
        throw new ConfigError(
          "transaction-nested",
          `a transaction of ${storeName} is open here already, and one inside it could not commit with it; ` +
            "use currentTransaction(store)",
        );
      }
      return library.begin(async (tx) => {
        const held = { tx, open: true };
        try {
          return await surrounding.run(held, work, tx);
        } finally {
          held.open = false;
        }
      }, options);
    },
  };
}
