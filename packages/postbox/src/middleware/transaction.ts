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

/** Transactions that conflicted run again at different times. */
const conflictDelay = exponential({ initialMs: 5, maxMs: 500, jitter: 1 });
const mostTries = 10;

/**
 * Runs everything inside in a transaction. If it fails because of a concurrent transaction (a deadlock, a serialization
 * failure), all of it runs again, up to ten times. A failure inside, or an aborted `context.signal`, rolls everything
 * back. If the handler ignores the signal, its transaction is ended by force (`delivery.abandoned`): nothing that it
 * still does can commit, so nothing waits for it. The message is acknowledged after COMMIT. If the process crashes
 * between the two, the message is delivered again, which `inbox(store)` detects.
 *
 * @example
 * ```ts
 * const router = createRouter("billing")
 *   .use(transaction(store, { isolation: "serializable" }))
 *   .on(OrderPlaced, async (order, { tx }) => {
 *     await tx.query("UPDATE orders SET billed = true WHERE id = $1", [order.orderId]);
 *   });
 * ```
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
            // The caller has been told that this failed, so it must not commit after all.
            signal.throwIfAborted();
            return returned;
          }, txOptions);
          if (kept !== undefined) kept.committed = kept.handled;
          if (runtime.failpoint) await runtime.failpoint("transaction.committed");
          return outputs;
        } catch (error) {
          if (!begun) throw unavailable(store.name, error);
          if (running) {
            // It was ended by force, which its library may report as a lost connection.
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

/** The transaction rolled back, or its outcome is unknown. The message may be the cause. */
function lost(store: Store, error: unknown): PostboxError {
  const text = `${store.name} lost its connection during this transaction: ${reasonOf(error)}; it is tried again`;
  return new PostboxError("transaction-lost", text, { cause: error });
}

function contended(error: unknown): PostboxError {
  const text = `this transaction conflicted with others ${mostTries} times, the last time with: ${reasonOf(error)}`;
  return new PostboxError("transaction-conflict", `${text}; it is tried again later`, { cause: error });
}
