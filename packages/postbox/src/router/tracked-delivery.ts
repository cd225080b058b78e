import { PostboxError } from "../errors.js";
import type { Member } from "../internal/crowd.js";
import type { Runtime } from "../internal/runtime.js";
import type { Message } from "../message/message.js";
import { alreadySettled } from "../settle-once.js";
import { aboutMessage, type Telemetry } from "../telemetry/events.js";
import type { Delivery } from "../transport.js";
import type { Verdict } from "./keeper.js";

/**
 * A delivery whose settlement is reported to telemetry, and has no effect once the delivery was given back at a stop or
 * revoked by the broker.
 */
export interface TrackedDelivery extends Delivery, Member {
  readonly message: Message;
  /** Whether it is settled or revoked. */
  readonly settled: boolean;
  /** For a message that a keeper stores, with what happens to it there. */
  ack(kept?: Verdict): Promise<void>;
  retry(delayMs: number, error?: Error): Promise<void>;
}

type Verb = "ack" | "retry" | "park" | "release";

export interface TrackingOptions {
  readonly consumer: string;
  readonly telemetry: Telemetry;
  readonly runtime: Runtime;
}

/**
 * If the connection is lost during a settlement, the broker delivers the message again, and an inbox skips it. This is
 * reported to telemetry, and does not change the handler's result.
 */
export function trackDelivery(
  delivery: Delivery,
  options: TrackingOptions,
  done: (delivery: TrackedDelivery) => void,
): TrackedDelivery {
  const { consumer, telemetry, runtime } = options;
  const { message, attempt, signal } = delivery;
  const id = message.id;
  let by: Verb | undefined;

  const settle = (verb: Verb, call: () => Promise<void>, told: () => void): Promise<void> => {
    // It was given back while the handler still ran: the result comes too late.
    if (by === "release" || (by !== undefined && verb === "release")) return Promise.resolve();
    if (by !== undefined) return Promise.reject(alreadySettled(id, verb, by));
    tracked.settled = true;
    if (signal?.aborted) {
      by = "release";
      return endRevoked(delivery, options).then(() => done(tracked));
    }
    by = verb;
    return started(call).then(
      () => {
        told();
        done(tracked);
      },
      async (cause) => {
        if (signal?.aborted) telemetry({ name: "delivery.revoked", consumer, id });
        else telemetry({ name: "router.failed", consumer, error: PostboxError.from(cause) });
        // As long as the connection stands, nothing else would give the message back.
        if (verb !== "release") await delivery.release().catch(() => {});
        done(tracked);
      },
    );
  };

  const tell = (verdict: Verdict) => {
    const { error } = verdict;
    const about = aboutMessage(message);
    if (verdict.to === "park") telemetry({ name: "delivery.parked", consumer, ...about, error });
    else telemetry({ name: "delivery.retried", consumer, ...about, attempt, retryInMs: verdict.retryInMs, error });
  };

  const tracked: TrackedDelivery & { settled: boolean } = {
    message,
    attempt,
    ...(signal && { signal }),
    ...(delivery.redelivered && { redelivered: true }),
    ...(delivery.origin && { origin: delivery.origin }),
    ...(delivery.kept && { kept: delivery.kept }),
    // A plain property: a getter turns each delivery into a dictionary in V8, and handling takes twice as long.
    settled: false,
    place: -1,
    ack: (kept) => {
      // The keeper has stored it, whether or not the broker gets the acknowledgement.
      if (kept !== undefined) tell(kept);
      return settle(
        "ack",
        runtime.failpoint === undefined
          ? () => delivery.ack()
          : async () => {
              await delivery.ack();
              await runtime.failpoint?.("router.acked");
            },
        () => telemetry({ name: "delivery.acked", consumer, id }),
      );
    },
    retry: (retryInMs, error = new Error("asked for by the handler")) =>
      settle(
        "retry",
        () => delivery.retry(retryInMs, error),
        () => tell({ to: "retry", retryInMs, error }),
      ),
    park: (error) =>
      settle(
        "park",
        () => delivery.park(error),
        () => tell({ to: "park", error }),
      ),
    release: () =>
      settle(
        "release",
        () => delivery.release(),
        () => telemetry({ name: "delivery.released", consumer, id }),
      ),
  };
  return tracked;
}

/**
 * Nothing can change the broker's state any more. Tells the receiver, which may wait for it, that the work has ended.
 * Never rejects.
 */
export function endRevoked(delivery: Delivery, { consumer, telemetry }: TrackingOptions): Promise<void> {
  telemetry({ name: "delivery.revoked", consumer, id: delivery.message.id });
  return started(() => delivery.release()).catch(() => {});
}

/** Turns the call into a promise, even if it throws. */
function started(call: () => Promise<void>): Promise<void> {
  try {
    return call();
  } catch (error) {
    return Promise.reject(error);
  }
}
