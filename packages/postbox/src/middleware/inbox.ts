import type { BaseContext, InTransaction } from "../router/context.js";
import type { Middleware, Next, None } from "../router/middleware.js";
import type { Store } from "../store.js";

/**
 * Handles each message once per consumer: its id is written first, in the handler's own transaction, so that memory and
 * effects commit together or not at all. A message that is remembered already skips the handler and is acked.
 * The same message delivered twice at once: the second waits for the first one's end.
 */
export function inbox<Tx>(store: Store<Tx>): Middleware<"inbox", InTransaction<Tx>, None, "published"> {
  return {
    name: "inbox",
    needs: ["tx"],
    adds: [],
    refuses: ["published"],
    store,
    async run({ tx, consumer, message, telemetry, runtime }: BaseContext & InTransaction<Tx>, next: Next) {
      if ((await store.remember(tx, consumer, message)) === "duplicate") {
        telemetry({ name: "delivery.skipped", consumer, id: message.id });
        return [];
      }
      if (runtime.failpoint) await runtime.failpoint("inbox.remembered");
      return next();
    },
  };
}
