import { PermanentError, type PostboxError } from "../errors.js";
import { soundError } from "../internal/sound-error.js";
import { createTurns } from "../internal/turns.js";
import { aboutMessage } from "../telemetry/events.js";
import { settlesAlone } from "./failures.js";
import type { Handled, Running } from "./handle.js";
import { isStoreFailure, isTransient } from "./is-transient.js";
import { pauseOf } from "./pause.js";
import type { SessionOptions } from "./session.js";
import type { TrackedDelivery } from "./tracked-delivery.js";

type Outcome = { readonly handled: Handled } | { readonly error: unknown };

/** The latest run of a handler, and what came of it. */
interface Attempted {
  readonly running: Running<Handled>;
  readonly outcome: Outcome;
}

/** How a message is handled once more. */
interface Again {
  handle(): Running<Handled>;
  /** Nothing of it runs until then. */
  rest(): void;
}

/** Handles again, in place, what failed for a reason that no later delivery would change. */
export type HandleInPlace = (
  delivery: TrackedDelivery,
  again: Again,
  running: Running<Handled>,
  error: unknown,
) => Promise<Attempted>;

/** How often the store may go away while a message is handled. */
const mostLosses = 4;

/**
 * If the store cannot do its part, the message keeps its place and is handled again when it can. So does one that
 * failed for another reason than itself, if its broker cannot deliver it later. But a message that was being handled
 * each time the connection was lost may be the reason: such messages are tried one at a time, and not for ever.
 */
export function createHandleInPlace(options: SessionOptions, stopping: AbortSignal): HandleInPlace {
  const { consumer, runtime, telemetry } = options;
  const suspects = createTurns();

  function keepsPlace(delivery: TrackedDelivery, error: unknown): error is PostboxError {
    return isStoreFailure(error) || (!settlesAlone(delivery, options.settles) && isTransient(error));
  }

  function tell({ message, attempt }: TrackedDelivery, retryInMs: number, error: PostboxError): void {
    if (isStoreFailure(error)) telemetry({ name: "router.failed", consumer, error, retryInMs });
    else telemetry({ name: "delivery.retried", consumer, ...aboutMessage(message), attempt, retryInMs, error });
  }

  return async (delivery, again, first, thrown) => {
    let [running, error] = [first, thrown];
    for (let failures = 1, losses = 0; ; failures++) {
      if (stopping.aborted || delivery.signal?.aborted || !keepsPlace(delivery, error)) {
        return { running, outcome: { error } };
      }
      if (error.code === "transaction-lost") losses++;
      if (losses === mostLosses) return { running, outcome: { error: suspect(error) } };
      const retryInMs = options.backoff(failures, runtime.random);
      tell(delivery, retryInMs, error);
      // Never twice at once.
      await running.ended();
      again.rest();
      await pauseOf(delivery, retryInMs, stopping, runtime);
      const leave = losses > 0 ? await suspects.enter() : () => {};
      running = again.handle();
      try {
        return { running, outcome: { handled: await running.result } };
      } catch (thrownAgain) {
        error = soundError(thrownAgain);
      } finally {
        leave();
      }
    }
  };
}

function suspect(error: PostboxError): PermanentError {
  const text = `the store went away ${mostLosses} times while this message was handled, the last time with: ${error.message}`;
  return new PermanentError(text, { code: "message-suspect", cause: error });
}
