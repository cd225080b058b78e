import { ConfigError, PermanentError, PostboxError } from "../errors.js";
import { soundError } from "../internal/sound-error.js";
import { isTransient } from "./is-transient.js";
import type { Verdict } from "./keeper.js";
import { pauseOf } from "./pause.js";
import type { SessionOptions } from "./session.js";
import type { TrackedDelivery } from "./tracked-delivery.js";
import { createUnknownTypes } from "./unknown-types.js";

/**
 * Decides what becomes of deliveries that were not handled, and settles them so. No call rejects, but for
 * `unknownType`.
 */
export interface Failures {
  /** Its handling, or its acknowledgement, has failed with this. */
  settle(delivery: TrackedDelivery, thrown: unknown): Promise<void>;
  /** This instance has no handler for its type. */
  unknownType(delivery: TrackedDelivery): Promise<void>;
  /** For what should not happen: a message must not stay unsettled for a fault of ours. */
  giveBack(delivery: TrackedDelivery, thrown: unknown): Promise<void>;
}

/** Whether the broker can deliver it again later, and park it. What comes out of a box always can be. */
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
    // Past the keeper, if the broker can: it brings it to any instance, a box only to the one that owns its lane.
    return settlesAlone(delivery, options.settles)
      ? delivery.retry(retryInMs, error)
      : settleAs(delivery, { to: "retry", retryInMs, error });
  }

  async function failed(delivery: TrackedDelivery, thrown: unknown): Promise<void> {
    const error = soundError(thrown);
    if (delivery.settled) {
      // Its handler had settled it by hand: too late to decide anything, but not to tell. What a stop gave back has
      // been told.
      if (!giveUp.aborted) telemetry({ name: "router.failed", consumer, error: PostboxError.from(error) });
      return;
    }
    // Its result comes too late: the broker delivers it again.
    if (delivery.signal?.aborted) return delivery.release();
    const retryInMs = options.backoff(delivery.attempt, runtime.random);
    // Nothing was wrong with the message: no attempt is spent, wherever they are counted.
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

  /** If the inbox stores the failure, the broker has done its part. */
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
   * Neither the inbox nor the broker can set it aside. Its stream waits for it, which is reported, so that it is not
   * lost.
   */
  async function holdUp(delivery: TrackedDelivery, cause: Error): Promise<void> {
    const text =
      `message ${delivery.message.id} of ${consumer} failed, and neither its inbox nor its broker can set it ` +
      `aside: ${cause.message}; ` +
      "it is handled again, and what is behind it is not committed until then: mend its handler, or skip it at the " +
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
 * What is thrown for the same message in the same way every time: wrong use, and outputs that cannot be published. A
 * handler that ends its own transaction may commit a part of its work each time.
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
