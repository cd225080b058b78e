import { ConfigError } from "../errors.js";
import { arrivalOf } from "../inbox/arrivals.js";
import { claimOf, finish } from "../inbox/finish.js";
import { checkInbox, type DurableInboxOptions } from "../inbox/inbox-options.js";
import { createKeeper } from "../inbox/keeper.js";
import type { BaseContext, InTransaction } from "../router/context.js";
import type { Middleware, Next, None } from "../router/middleware.js";
import type { Store } from "../store.js";

/**
 * Stores every message in the consumer's box, `inbox/<consumer>`, when it arrives, acknowledges it, and handles it from
 * the box once: the handler's own transaction removes it. The effects of one key happen in the order of delivery, even
 * if a handler fails.
 *
 * @example
 * ```ts
 * const router = createRouter("billing")
 *   .use(transaction(store))
 *   .use(durableInbox(store))
 *   .on(OrderPlaced, async (order, { tx }) => {
 *     await tx.query("INSERT INTO invoices (order_id) VALUES ($1)", [order.orderId]);
 *   });
 * ```
 */
export function durableInbox<Tx>(
  store: Store<Tx>,
  options: DurableInboxOptions = {},
): Middleware<"durableInbox", InTransaction<Tx>, None, "published"> {
  const checked = checkInbox("durableInbox", options, 100);
  return {
    name: "durableInbox",
    needs: ["tx"],
    adds: [],
    refuses: ["published"],
    store,
    storesFirst: true,
    keeper: (given) => createKeeper(store, "all", checked, given),
    async run(context: BaseContext & InTransaction<Tx>, next: Next) {
      const { tx, runtime } = context;
      const claim = claimOf(context);
      if (claim === undefined) {
        throw new ConfigError(
          "middleware-order",
          "durableInbox(store) handles what its own router has stored, and nothing else",
        );
      }
      return finish(store.inbox, tx, arrivalOf(context, checked), claim, runtime, next);
    },
  };
}
