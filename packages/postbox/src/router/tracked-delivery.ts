import { PostboxError } from "../errors.js";
import type { Member } from "../internal/crowd.js";
import type { Runtime } from "../internal/runtime.js";
import type { Message } from "../message/message.js";
import { aboutMessage, type Telemetry } from "../telemetry/events.js";
import type { Delivery } from "../transport.js";
import type { Verdict } from "./keeper.js";

/** A delivery as the router settles it: told to telemetry, and never once it has been given back at a stop. */
export interface TrackedDelivery extends Delivery, Member {
  readonly message: Message;
  /** Whether it has ended, one way or another. */
  readonly settled: boolean;
  /** Of one that somebody keeps, with what is to become of it there. */
  ack(kept?: Verdict): Promise<void>;
  retry(delayMs: number, error?: Error): Promise<void>;
}

export interface TrackingOptions {
  readonly consumer: string;
  readonly telemetry: Telemetry;
  readonly runtime: Runtime;
}

/**
 * A settlement that fails (the connection is gone) is no failure of the message: the broker delivers it again, and the
 * inbox knows it. It is told to telemetry and not thrown into the handler's result.
 */
export function trackDelivery(
  delivery: Delivery,
  { consumer, telemetry, runtime }: TrackingOptions,
  done: (delivery: TrackedDelivery) => void,
): TrackedDelivery {
  const { message, attempt } = delivery;
  const id = message.id;
  let state: "open" | "settled" | "released" = "open";

  const settle = (next: "settled" | "released", verb: () => Promise<void>, told: () => void): Promise<void> => {
    // Given back at the deadline while the handler still ran: whatever it says now comes too late.
    if (state === "released" || (state === "settled" && next === "released")) return Promise.resolve();
    if (state === "settled") {
      const text = `message ${id} is settled already; settle each delivery once`;
      return Promise.reject(new PostboxError("delivery-settled", text));
    }
    state = next;
    tracked.settled = true;
    return started(verb).then(
      () => {
        told();
        done(tracked);
      },
      async (cause) => {
        telemetry({ name: "router.failed", consumer, error: PostboxError.from(cause) });
        // On a connection that lives, nobody else would ever bring it back.
        if (next !== "released") await delivery.release().catch(() => {});
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
    ...(delivery.redelivered && { redelivered: true }),
    ...(delivery.origin && { origin: delivery.origin }),
    ...(delivery.kept && { kept: delivery.kept }),
    // Not a getter: with one, the engine makes a dictionary of each delivery, and handling it takes twice as long.
    settled: false,
    place: -1,
    ack: (kept) => {
      // It was kept, whether or not the broker hears of it.
      if (kept !== undefined) tell(kept);
      return settle(
        "settled",
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
        "settled",
        () => delivery.retry(retryInMs, error),
        () => tell({ to: "retry", retryInMs, error }),
      ),
    park: (error) =>
      settle(
        "settled",
        () => delivery.park(error),
        () => tell({ to: "park", error }),
      ),
    release: () =>
      settle(
        "released",
        () => delivery.release(),
        () => telemetry({ name: "delivery.released", consumer, id }),
      ),
  };
  return tracked;
}

/** What it does, as a promise, whatever it throws. */
function started(verb: () => Promise<void>): Promise<void> {
  try {
    return verb();
  } catch (error) {
    return Promise.reject(error);
  }
}
