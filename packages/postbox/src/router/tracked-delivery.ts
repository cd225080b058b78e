import { PostboxError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import type { Message } from "../message/message.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Delivery } from "../transport.js";

/** A delivery as the router settles it: told to telemetry, and never once it has been given back at a stop. */
export interface TrackedDelivery extends Delivery {
  readonly message: Message;
  /** Whether it has ended, one way or another. */
  readonly settled: boolean;
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

  const settle = async (next: "settled" | "released", verb: () => Promise<void>, told: () => void): Promise<void> => {
    // Given back at the deadline while the handler still ran: whatever it says now comes too late.
    if (state === "released") return;
    if (state === "settled") {
      if (next === "released") return;
      throw new PostboxError("delivery-settled", `message ${id} is settled already; settle each delivery once`);
    }
    state = next;
    try {
      await verb();
      told();
    } catch (cause) {
      telemetry({ name: "router.failed", consumer, error: PostboxError.from(cause) });
      // On a connection that lives, nobody else would ever bring it back.
      if (next !== "released") await delivery.release().catch(() => {});
    } finally {
      done(tracked);
    }
  };

  const tracked: TrackedDelivery = {
    message,
    attempt,
    get settled() {
      return state !== "open";
    },
    ack: () =>
      settle(
        "settled",
        async () => {
          await delivery.ack();
          if (runtime.failpoint) await runtime.failpoint("router.acked");
        },
        () => telemetry({ name: "delivery.acked", consumer, id }),
      ),
    retry: (delayMs, error = new Error("asked for by the handler")) =>
      settle(
        "settled",
        () => delivery.retry(delayMs, error),
        () => telemetry({ name: "delivery.retried", consumer, id, attempt, retryInMs: delayMs, error }),
      ),
    park: (reason) =>
      settle(
        "settled",
        () => delivery.park(reason),
        () => telemetry({ name: "delivery.parked", consumer, id, error: reason }),
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
