import type { Channel, ConsumeMessage } from "amqplib";
import type { Acks } from "./acks.js";
import { pauseAfter } from "./arrival.js";
import type { Topology } from "./topology.js";

/** Gives deliveries back to their queue. */
export interface Returns {
  /** At once. */
  now(raw: ConsumeMessage): void;
  /**
   * After a pause, for what cannot be set aside now: given back at once it would come, and fail, at once. Older brokers
   * count this as a delivery without an outcome: with growing pauses, the limit of those outlasts an outage of a
   * quarter of an hour.
   */
  later(raw: ConsumeMessage): void;
  /**
   * Has the broker park it, for what this client cannot copy: nothing of it gets lost. Only a queue that was declared
   * here is known to dead-letter; any other one gets it back, counted, and decides by its own limit.
   */
  toBroker(raw: ConsumeMessage): void;
}

/** `isOpen` tells whether the channel can still settle anything. */
export function createReturns(
  channel: Channel,
  acks: Acks,
  topology: Topology,
  signal: AbortSignal,
  isOpen: () => boolean,
): Returns {
  const settle = (raw: ConsumeMessage, effect: () => void) => {
    acks.without(raw.fields.deliveryTag);
    try {
      effect();
    } catch {
      // The client knows that the channel has ended before it says so, and with that it is given back. This would end
      // the process.
    }
  };
  /**
   * After a stop it stays open, and goes back with the channel: that gives back everything at once and in its order,
   * and the turn of a single active consumer only then. Of many that are given back one by one, a quorum queue forgets
   * the order.
   */
  const now = (raw: ConsumeMessage) => {
    // The caller may hear of a stop before the signal of this run is aborted.
    process.nextTick(() => {
      if (!signal.aborted) settle(raw, () => channel.nack(raw, false, true));
    });
  };
  const afterPause = (raw: ConsumeMessage, work: () => void) => {
    setTimeout(() => isOpen() && work(), pauseAfter(raw)).unref();
  };

  return {
    now,
    later: (raw) => afterPause(raw, () => now(raw)),
    toBroker(raw) {
      if (topology === "declare") settle(raw, () => channel.reject(raw, false));
      else afterPause(raw, () => settle(raw, () => channel.reject(raw, true)));
    },
  };
}
