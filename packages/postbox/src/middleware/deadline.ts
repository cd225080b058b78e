import { withTimeout } from "../internal/with-timeout.js";
import { expiredError, lifeLeftMs } from "../message/expiry.js";
import { checkOptions, oneOf } from "../options.js";
import type { BaseContext, Outputs } from "../router/context.js";
import type { Middleware, None } from "../router/middleware.js";
import type { WithSignal } from "./timeout.js";

/** Options of `deadline`. */
export interface DeadlineOptions {
  /** What to do with a message whose `expirytime` has passed. Defaults to `park`. */
  readonly onExpired?: "park" | "drop";
}

/**
 * Respects the extension `expirytime`: an expired message is not handled, and a handler that is still running when its
 * message expires fails. Messages without the extension pass. The publisher's clock set the time, and this host's clock
 * is compared with it.
 *
 * @example
 * ```ts
 * const router = createRouter("billing")
 *   .use(deadline({ onExpired: "drop" }))
 *   .on(OrderPlaced, async (order, { signal }) => {
 *     await fetch("https://bank.example/charges", { method: "POST", body: order.orderId, signal });
 *   });
 * ```
 */
export function deadline(options: DeadlineOptions = {}): Middleware<"deadline", None, WithSignal, "tx"> {
  checkOptions("deadline", options, { onExpired: oneOf("park", "drop") });
  return {
    name: "deadline",
    needs: [],
    adds: ["signal"],
    refuses: ["tx"],
    async run(context: BaseContext, next: (added: WithSignal) => Promise<Outputs>) {
      const { message, runtime, signal } = context;
      const leftMs = lifeLeftMs(message, runtime.now());
      if (leftMs === Number.POSITIVE_INFINITY) return next({ signal });
      const expired = () => expiredError(message);
      if (leftMs <= 0) {
        if (options.onExpired === "drop") return [];
        throw expired();
      }
      return withTimeout(runtime, leftMs, expired, (inner) => next({ signal: inner }), signal);
    },
  };
}
