import type { Outbox } from "../outbox/outbox.js";
import type { BaseContext, InTransaction, Outputs, WithOutputs } from "../router/context.js";
import type { Middleware } from "../router/middleware.js";
import { descending, lineageOf } from "./lineage.js";

/**
 * Publishes the handler's outputs through the outbox, in the handler's transaction, so both commit or neither does.
 * They carry the handled message's `correlationid` (its id, if it has none) and its id as `causationid`.
 *
 * @example
 * ```ts
 * const router = createRouter("billing")
 *   .use(transaction(store))
 *   .use(inbox(store))
 *   .use(outboxOutputs(outbox))
 *   .on(OrderPlaced, async (order) => [OrderPlaced.message({ ...order, total: 0 })]);
 * ```
 */
export function outboxOutputs<Tx>(outbox: Outbox<Tx>): Middleware<"outboxOutputs", InTransaction<Tx>, WithOutputs> {
  return {
    name: "outboxOutputs",
    needs: ["tx"],
    adds: ["outputs"],
    refuses: [],
    store: outbox.store,
    async run(
      { tx, message, runtime }: BaseContext & InTransaction<Tx>,
      next: (added: WithOutputs) => Promise<Outputs>,
    ) {
      const outputs = await next({ outputs: true });
      if (outputs.length > 0) {
        const lineage = lineageOf(message);
        await outbox.in(tx).publishAll(outputs.map((draft) => descending(draft, lineage)));
        if (runtime.failpoint) await runtime.failpoint("outputs.appended");
      }
      return [];
    },
  };
}
