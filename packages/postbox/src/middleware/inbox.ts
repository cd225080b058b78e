import { arrivalOf, refusalOf } from "../inbox/arrivals.js";
import { claimOf, finish } from "../inbox/finish.js";
import { checkInbox, type InboxOptions } from "../inbox/inbox-options.js";
import { createKeeper } from "../inbox/keeper.js";
import { unavailable } from "../internal/unavailable.js";
import type { BaseContext, InTransaction } from "../router/context.js";
import type { Middleware, Next, None } from "../router/middleware.js";
import type { Remembered, Store } from "../store.js";

/**
 * Handles each message once per consumer. The message's id is stored first, in the handler's own transaction, so both
 * commit or neither does. If the id is already stored, the message is acknowledged without its handler. If the same
 * message is delivered twice at once, the second delivery waits for the first.
 *
 * A message that fails is stored in the consumer's box, `inbox/<consumer>`, and acknowledged. It is retried from there,
 * and parked there when the router's `maxAttempts` are spent. So is a message that is redelivered and was not handled,
 * since it may have crashed a process.
 *
 * @example
 * ```ts
 * const router = createRouter("billing")
 *   .use(transaction(store))
 *   .use(inbox(store))
 *   .on(OrderPlaced, async (order, { tx }) => {
 *     await tx.query("INSERT INTO invoices (order_id) VALUES ($1)", [order.orderId]);
 *   });
 * ```
 */
export function inbox<Tx>(
  store: Store<Tx>,
  options: InboxOptions = {},
): Middleware<"inbox", InTransaction<Tx>, None, "published"> {
  const checked = checkInbox("inbox", options, 1_000);
  return {
    name: "inbox",
    needs: ["tx"],
    adds: [],
    refuses: ["published"],
    store,
    startsWithStatement: (context) => claimOf(context) === undefined,
    keeper: (given) => createKeeper(store, "redelivered", checked, given),
    async run(context: BaseContext & InTransaction<Tx>, next: Next) {
      const { tx, consumer, message, telemetry, runtime } = context;
      const arrival = arrivalOf(context, checked);
      const claim = claimOf(context);
      if (claim !== undefined) return finish(store.inbox, tx, arrival, claim, runtime, next);
      let remembered: Remembered;
      try {
        remembered = await store.inbox.remember(tx, arrival, checked.remember);
      } catch (error) {
        // The handler has not run, so this message did not cause the loss of the connection.
        throw store.isUnavailable(error) ? unavailable(store.name, error) : error;
      }
      if (remembered === "duplicate") {
        telemetry({ name: "delivery.skipped", consumer, id: message.id });
        return [];
      }
      if (remembered !== "new") throw refusalOf(remembered, arrival);
      if (runtime.failpoint) await runtime.failpoint("inbox.remembered");
      return next();
    },
  };
}
