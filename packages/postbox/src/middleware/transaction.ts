import { exponential } from "../backoff.js";
import { PostboxError } from "../errors.js";
import { reasonOf } from "../internal/reason-of.js";
import { sleep } from "../internal/runtime.js";
import { isUnavailable, unavailable } from "../internal/unavailable.js";
import { checkOptions, oneOf } from "../options.js";
import type { BaseContext, InTransaction, Outputs } from "../router/context.js";
import type { AnyMiddleware, Middleware, None } from "../router/middleware.js";
import type { Store, TransactionOptions } from "../store.js";
import { aboutMessage } from "../telemetry/events.js";

const rules = { isolation: oneOf("read committed", "repeatable read", "serializable") };

/** Those that ran into each other run again, not all at once. */
const conflictDelay = exponential({ initialMs: 5, maxMs: 500, jitter: 1 });
const mostTries = 10;

/**
 * BEGIN … COMMIT around everything inside. What fails for others that ran beside it (a deadlock, a serialization
 * failure) is run again, all of it, up to ten times. A failure inside, or a handler that was told to give up
 * (`context.signal`), rolls everything back. A handler that was told and does not end loses its transaction by force
 * (`delivery.abandoned`): nothing that it still does can commit, so it is not waited for. The message is acked after
 * the COMMIT; when the process dies between the two, it is delivered again, which `inbox(store)` notices.
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
    endsInside: true,
    async run(context: BaseContext, next: (added: InTransaction<Tx>) => Promise<Outputs>, inside?: AnyMiddleware) {
      const { kept, runtime, signal, telemetry, consumer, message } = context;
      const startsWithStatement = inside?.startsWithStatement?.(context) === true;
      const txOptions = { ...options, signal, startsWithStatement };
      for (let tries = 1; ; tries++) {
        let [begun, running] = [false, false];
        try {
          const outputs = await store.transaction(async (tx) => {
            begun = true;
            if (runtime.failpoint) await runtime.failpoint("transaction.begun");
            running = true;
            let returned: Outputs;
            try {
              returned = await next({ tx });
            } finally {
              running = false;
            }
            // Whoever waited has been told that this failed, so it must not commit after all.
            signal.throwIfAborted();
            return returned;
          }, txOptions);
          if (kept !== undefined) kept.committed = kept.handled;
          if (runtime.failpoint) await runtime.failpoint("transaction.committed");
          return outputs;
        } catch (error) {
          if (!begun) throw unavailable(store.name, error);
          if (running) {
            // Ended by force, which its library may tell as a lost connection.
            const reason: unknown = signal.aborted ? signal.reason : error;
            telemetry({
              name: "delivery.abandoned",
              consumer,
              ...aboutMessage(message),
              error: PostboxError.from(reason),
            });
            throw reason;
          }
          if (isUnavailable(error)) throw error;
          if (store.isUnavailable(error)) throw lost(store, error);
          if (!store.isConflict(error) || signal.aborted) throw error;
          if (tries >= mostTries) throw contended(error);
          await sleep(runtime, conflictDelay(tries, runtime.random), signal);
        }
      }
    },
  };
}

/** What it did has not happened, or is not known to have. The message may have been the reason. */
function lost(store: Store, error: unknown): PostboxError {
  const text = `${store.name} went away during this transaction: ${reasonOf(error)}; it is tried again`;
  return new PostboxError("transaction-lost", text, { cause: error });
}

function contended(error: unknown): PostboxError {
  const text = `this transaction ran into others ${mostTries} times, the last time with: ${reasonOf(error)}`;
  return new PostboxError("transaction-conflict", `${text}; it is tried again later`, { cause: error });
}
