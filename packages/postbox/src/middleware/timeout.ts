import { ConfigError, PostboxError } from "../errors.js";
import { withTimeout } from "../internal/with-timeout.js";
import { positive } from "../options.js";
import type { BaseContext, Outputs } from "../router/context.js";
import type { Middleware, None } from "../router/middleware.js";

/** The context's signal, made stricter by a middleware. */
export interface WithSignal {
  readonly signal: AbortSignal;
}

/**
 * Fails what is inside if it takes longer than `ms`, and aborts `context.signal`. If the handler ignores the signal,
 * its transaction rolls back instead of committing late. The next message of the key starts, and the handler's place
 * becomes free, when the handler has ended.
 *
 * @example
 * ```ts
 * const router = createRouter("mail")
 *   .use(timeout(10_000))
 *   .on(OrderPlaced, async (order, { signal }) => {
 *     await fetch("https://mail.example/send", { method: "POST", body: order.orderId, signal });
 *   });
 * ```
 */
export function timeout(ms: number): Middleware<"timeout", None, WithSignal, "tx"> {
  if (!positive.test(ms)) {
    throw new ConfigError("option-invalid", `timeout(ms): ms must be ${positive.expected}; got ${ms}`);
  }
  return {
    name: "timeout",
    needs: [],
    adds: ["signal"],
    refuses: ["tx"],
    async run(context: BaseContext, next: (added: WithSignal) => Promise<Outputs>) {
      const { message, runtime } = context;
      const late = () =>
        new PostboxError(
          "handler-timeout",
          `handling message ${message.id} of type ${message.type} took over ${ms} ms`,
        );
      return withTimeout(runtime, ms, late, (signal) => next({ signal }), context.signal);
    },
  };
}
