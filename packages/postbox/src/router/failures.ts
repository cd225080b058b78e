import { ConfigError, PermanentError, PostboxError } from "../errors.js";
import { soundError } from "../internal/sound-error.js";
import { isTransient } from "./is-transient.js";
import type { Verdict } from "./keeper.js";
import { pauseOf } from "./pause.js";
import type { SessionOptions } from "./session.js";
import type { TrackedDelivery } from "./tracked-delivery.js";
import { createUnknownTypes } from "./unknown-types.js";

/** Decides what to do with deliveries that were not handled, and settles them. Only `unknownType` may reject. */
export interface Failures {
  /** Handling or acknowledging it failed with this error. */
  settle(delivery: TrackedDelivery, thrown: unknown): Promise<void>;
  /** This instance has no handler for its type. */
  unknownType(delivery: TrackedDelivery): Promise<void>;
  /** For internal errors: a bug of ours must not leave a message unsettled. */
  giveBack(delivery: TrackedDelivery, thrown: unknown): Promise<void>;
}

/** Whether the broker itself can retry and park it. Messages from a box can always be retried and parked. */
export function settlesAlone({ kept }: TrackedDelivery, settles: SessionOptions["settles"]): boolean {
  return settles !== "in-order" || kept !== undefined;
}

/** `stopping` is aborted when a stop begins, `giveUp` at its deadline. */
export function createFailures(
  handled: readonly string[],
  options: SessionOptions,
  { stopping, giveUp }: { readonly stopping: AbortSignal; readonly giveUp: AbortSignal },
): Failures {
  const { consumer, runtime, telemetry } = options;
  const unknownTypes = createUnknownTypes({ ...options, handled, waitMs: options.unknownWaitMs });

  async function unknownType(delivery: TrackedDelivery): Promise<void> {
    const { id, type } = delivery.message;
    if (options.onUnknownType === "ignore") {
      telemetry({ name: "delivery.ignored", consumer, id, type });
      return delivery.ack();
    }
    const retryInMs = unknownTypes.retryInMs(delivery.message);
    if (retryInMs === undefined) {
      const text =
        `${consumer} has no handler for ${type}, and no other instance handled it within ${options.unknownWaitMs} ` +
        "ms; " +
        'register one with .on(...), or choose onUnknownType: "ignore"';
      return settleAs(delivery, { to: "park", error: new PermanentError(text, { code: "no-handler" }) });
    }
    if (stopping.aborted) return delivery.release();
    const text =
      `this instance of ${consumer} has no handler for ${type}, and leaves it to another one; if none has one, ` +
      "register it with .on(...)";
    const error = new PostboxError("no-handler", text);
    // If the broker can, it retries the message rather than the keeper: the broker delivers to any instance, a box only
    // to the owner of the lane.
    return settlesAlone(delivery, options.settles)
      ? delivery.retry(retryInMs, error)
      : settleAs(delivery, { to: "retry", retryInMs, error });
  }

  async function failed(delivery: TrackedDelivery, thrown: unknown): Promise<void> {
    const error = soundError(thrown);
    if (delivery.settled) {
      // The handler settled it by hand, so there is nothing to decide, only to report. What a stop gave back is
      // reported already.
      if (!giveUp.aborted) telemetry({ name: "router.failed", consumer, error: PostboxError.from(error) });
      return;
    }
    // The result comes too late: the broker delivers the message again.
    if (delivery.signal?.aborted) return delivery.release();
    const retryInMs = options.backoff(delivery.attempt, runtime.random);
    // The message is not at fault, so it spends no attempt.
    if (isTransient(error)) {
      if (stopping.aborted) return delivery.release();
      if (settlesAlone(delivery, options.settles)) return delivery.retry(retryInMs, error);
    }
    if (isHopeless(error)) return settleAs(delivery, { to: "park", error });
    if (delivery.attempt >= options.maxAttempts) {
      const text = `${delivery.attempt} attempts failed, the last with: ${error.message}`;
      return settleAs(delivery, { to: "park", error: new PostboxError("attempts-spent", text, { cause: error }) });
    }
    return settleAs(delivery, { to: "retry", retryInMs, error });
  }

  /** If the inbox stores the failure, the delivery is acknowledged. */
  async function settleAs(delivery: TrackedDelivery, verdict: Verdict): Promise<void> {
    const taken = await options.keeper?.take(delivery, verdict, stopping);
    if (taken === "known") {
      telemetry({ name: "delivery.skipped", consumer, id: delivery.message.id });
      return delivery.ack();
    }
    if (taken !== undefined) return delivery.ack(taken);
    if (!settlesAlone(delivery, options.settles)) return holdUp(delivery, verdict.error);
    if (verdict.to === "park") return delivery.park(verdict.error);
    return delivery.retry(verdict.retryInMs, verdict.error);
  }

  /**
   * Neither the inbox nor the broker can set it aside, so its stream waits. This is reported, and the message is not
   * lost.
   */
  async function holdUp(delivery: TrackedDelivery, cause: Error): Promise<void> {
    const text =
      `message ${delivery.message.id} of ${consumer} failed, and neither its inbox nor its broker can set it ` +
      `aside: ${cause.message}; ` +
      "it is handled again, and the messages behind it are not committed until then: correct its handler, or skip it " +
      "at the " +
      "broker";
    telemetry({ name: "router.failed", consumer, error: new PostboxError("permanent", text, { cause }) });
    await pauseOf(delivery, options.backoff(options.maxAttempts, runtime.random), stopping, runtime);
    return delivery.release();
  }

  function giveBack(delivery: TrackedDelivery, thrown: unknown): Promise<void> {
    telemetry({ name: "router.failed", consumer, error: PostboxError.from(thrown) });
    return delivery.release();
  }

  return {
    settle: (delivery, thrown) => failed(delivery, thrown).catch((error) => giveBack(delivery, error)),
    unknownType,
    giveBack,
  };
}

/**
 * Errors that the same message would cause every time: wrong use, and outputs that cannot be published. A handler that
 * ends its own transaction may commit a part of its work each time.
 */
const hopeless: ReadonlySet<string> = new Set([
  "transaction-ended",
  "data-invalid",
  "content-type-unknown",
  "message-invalid",
  "message-too-large",
]);

function isHopeless(error: Error): boolean {
  if (error instanceof PermanentError || error instanceof ConfigError) return true;
  return error instanceof PostboxError && hopeless.has(error.code);
}
