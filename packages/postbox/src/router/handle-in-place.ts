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

/** The latest run of a handler, and its outcome. */
interface Attempted {
  readonly running: Running<Handled>;
  readonly outcome: Outcome;
}

/** How to handle the message again. */
interface Again {
  handle(): Running<Handled>;
  /** No handler runs until the next `handle`. */
  rest(): void;
}

/** Handles a message again in place if its failure would be the same in every later delivery. */
export type HandleInPlace = (
  delivery: TrackedDelivery,
  again: Again,
  running: Running<Handled>,
  error: unknown,
) => Promise<Attempted>;

/** How often the store's connection may be lost while a message is handled. */
const mostLosses = 4;

/**
 * If the store cannot do its part, the message keeps its place and is handled again once it can. So does a message
 * whose failure was not its own, if its broker cannot redeliver it later. A message that is being handled each time the
 * connection is lost may be the cause: such messages run one at a time, and only a limited number of times.
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
      // A message is never handled twice at once.
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
  const text =
    `the store's connection was lost ${mostLosses} times while this message was handled, the last time with: ` +
    error.message;
  return new PermanentError(text, { code: "message-suspect", cause: error });
}
