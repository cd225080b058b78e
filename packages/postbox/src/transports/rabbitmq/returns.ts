import type { Channel, ConsumeMessage } from "amqplib";
import type { Acks } from "./acks.js";
import { pauseAfter } from "./arrival.js";
import type { Topology } from "./topology.js";

/** Gives deliveries back to their queue. */
export interface Returns {
  /** At once. */
  now(raw: ConsumeMessage): void;
  /**
   * After a pause, for a message that cannot be set aside now: given back at once, it would arrive and fail at once.
   * Older brokers count this as a delivery without an outcome; with growing pauses, their limit outlasts an outage of a
   * quarter of an hour.
   */
  later(raw: ConsumeMessage): void;
  /**
   * Lets the broker park what this client cannot copy, so that nothing is lost. Only a queue that was declared here is
   * known to dead-letter; any other queue gets the message back and applies its own limit.
   */
  toBroker(raw: ConsumeMessage): void;
}

/** `isOpen` says whether the channel can still settle messages. */
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
      // The client knows that the channel has closed before it emits the event, and then the message is given back
      // anyway. Throwing would end the process.
    }
  };
  /**
   * After a stop, the message stays unsettled until the channel closes: that gives back everything at once and in
   * order, and only then activates the next single active consumer. A quorum queue loses the order of messages that are
   * given back one by one.
   */
  const now = (raw: ConsumeMessage) => {
    // The caller may learn of a stop before this run's signal is aborted.
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
