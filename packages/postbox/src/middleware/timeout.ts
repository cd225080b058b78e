import { ConfigError, PostboxError } from "../errors.js";
import { withTimeout } from "../internal/with-timeout.js";
import { positive } from "../options.js";
import type { BaseContext, Outputs } from "../router/context.js";
import type { Middleware, None } from "../router/middleware.js";

/** A signal that a middleware tightened. */
export interface WithSignal {
  readonly signal: AbortSignal;
}

/**
 * Fails what is inside when it takes longer than `ms`. The handler is told through `context.signal`. One that does not
 * listen is given up on all the same: a transaction inside rolls back instead of committing late, and the next message
 * of its key, and one more of `concurrency`, starts when it has ended after all.
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
