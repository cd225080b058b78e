import { withTimeout } from "../internal/with-timeout.js";
import { expiredError, lifeLeftMs } from "../message/expiry.js";
import { checkOptions, oneOf } from "../options.js";
import type { BaseContext, Outputs } from "../router/context.js";
import type { Middleware, None } from "../router/middleware.js";
import type { WithSignal } from "./timeout.js";

export interface DeadlineOptions {
  /** What becomes of a message whose `expirytime` has passed. Defaults to `park`. */
  readonly onExpired?: "park" | "drop";
}

/**
 * Respects the extension `expirytime`: a message that is too late is not handled, and one that runs out while it is
 * handled fails. Messages without it pass. The moment is compared with this host's clock, as it was set by another's.
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
