import { checkOptions, oneOf } from "../options.js";
import type { BaseContext, InTransaction, Outputs } from "../router/context.js";
import type { Middleware, None } from "../router/middleware.js";
import type { Store, TransactionOptions } from "../store.js";

const rules = { isolation: oneOf("read committed", "repeatable read", "serializable") };

/**
 * BEGIN … COMMIT around everything inside. A failure inside, or a handler that was told to give up (`context.signal`),
 * rolls everything back. The message is acked after the COMMIT; when the process dies between the two, it is delivered
 * again, which `inbox(store)` notices.
 */
export function transaction<Tx>(
  store: Store<Tx>,
  options: TransactionOptions = {},
): Middleware<"transaction", None, InTransaction<Tx>, "tx" | "delivery"> {
  checkOptions("transaction", options, rules);
  return {
    name: "transaction",
    needs: [],
    adds: ["tx"],
    refuses: ["tx", "delivery"],
    store,
    async run({ runtime, signal }: BaseContext, next: (added: InTransaction<Tx>) => Promise<Outputs>) {
      const outputs = await store.transaction(async (tx) => {
        if (runtime.failpoint) await runtime.failpoint("transaction.begun");
        const returned = await next({ tx });
        // Whoever waited has been told that this failed, so it must not commit after all.
        signal.throwIfAborted();
        return returned;
      }, options);
      if (runtime.failpoint) await runtime.failpoint("transaction.committed");
      return outputs;
    },
  };
}
