import { type Backoff, exponential } from "../backoff.js";
import { PermanentError } from "../errors.js";
import { answered } from "../internal/answer.js";
import { sleep } from "../internal/runtime.js";
import { callback, checkOptions, count } from "../options.js";
import type { Middleware, None } from "../router/middleware.js";

/** Options of `retry`. */
export interface RetryOptions {
  /** Total tries within one delivery, including the first. Defaults to 3. */
  readonly maxAttempts?: number;
  /** The delay between tries. Defaults to `exponential({ initialMs: 50, maxMs: 1000 })`. */
  readonly backoff?: Backoff;
  /** Which errors to retry here. Defaults to all but `PermanentError`. */
  readonly when?: (error: unknown) => boolean;
}

const rules = { maxAttempts: count, backoff: callback, when: callback };

/**
 * Retries what is inside, in place, before the failure reaches the broker. Meanwhile the message keeps its place in the
 * order of its key. A try that `timeout` inside gave up on must end before the next one starts. Must stand outside of a
 * transaction, which the first failure would already have aborted.
 *
 * @example
 * ```ts
 * const router = createRouter("mail")
 *   .use(retry({ maxAttempts: 3, backoff: constant(200) }))
 *   .on(OrderPlaced, async (order) => console.log(order.orderId));
 * ```
 */
export function retry(options: RetryOptions = {}): Middleware<"retry", None, None, "tx"> {
  checkOptions("retry", options, rules);
  const { maxAttempts = 3, backoff = exponential({ initialMs: 50, maxMs: 1000 }) } = options;
  const when = options.when ?? ((error) => !(error instanceof PermanentError));
  return {
    name: "retry",
    needs: [],
    adds: [],
    refuses: ["tx"],
    async run({ runtime, signal }, next) {
      for (let attempt = 1; ; attempt++) {
        try {
          return await next();
        } catch (error) {
          if (attempt >= maxAttempts || signal.aborted || !answered(when(error))) throw error;
          await sleep(runtime, answered(backoff(attempt, runtime.random)), signal);
          if (signal.aborted) throw error;
        }
      }
    },
  };
}
