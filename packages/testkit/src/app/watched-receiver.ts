import type { Message, Receiver } from "postbox";
import type { MemoryBroker } from "postbox/memory";
import type { Delivery } from "postbox/transport";

/** A failed delivery that the broker will redeliver. */
interface Retry {
  readonly message: Message;
  readonly dueAt: number;
  readonly reason: Error | undefined;
}

/** A receiver of the memory broker that tracks its deliveries. */
export interface WatchedReceiver extends Receiver {
  /** The consumers that have received. The queue of each has its name. */
  readonly consumers: ReadonlySet<string>;
  /** The number of deliveries so far, and of those that are not settled. */
  readonly deliveries: number;
  readonly unsettled: number;
  /** The deliveries that the broker holds back for a retry. */
  retries(consumer: string): readonly Retry[];
}

/** Calls `changed` whenever a delivery begins or ends. */
export function watchedReceiver(broker: MemoryBroker, now: () => number, changed: () => void): WatchedReceiver {
  const inner = broker.receiver();
  const consumers = new Set<string>();
  const retries = new Map<string, Set<Retry>>();
  let deliveries = 0;
  let unsettled = 0;

  function begin(consumer: string, { message }: Delivery): void {
    deliveries++;
    unsettled++;
    const waiting = retries.get(consumer);
    // If the retry is not due yet, it is still in the broker, and this delivery is a duplicate of it.
    const again = [...(waiting ?? [])].find((retry) => retry.message.id === message.id && retry.dueAt <= now());
    if (again !== undefined) waiting?.delete(again);
    changed();
  }

  function watched(consumer: string, delivery: Delivery): Delivery {
    const settle = async (verb: Promise<void>): Promise<void> => {
      await verb;
      unsettled--;
      changed();
    };
    return {
      ...delivery,
      ack: () => settle(delivery.ack()),
      release: () => settle(delivery.release()),
      park: (reason) => settle(delivery.park(reason)),
      retry(delayMs, reason) {
        const waiting = retries.get(consumer) ?? new Set();
        retries.set(consumer, waiting.add({ message: delivery.message, dueAt: now() + delayMs, reason }));
        return settle(delivery.retry(delayMs, reason));
      },
    };
  }

  return {
    name: inner.name,
    prepare: async (subscription) => inner.prepare?.(subscription),
    consumers,
    get deliveries() {
      return deliveries;
    },
    get unsettled() {
      return unsettled;
    },
    retries: (consumer) => [...(retries.get(consumer) ?? [])],
    receive(subscription, signal) {
      const { consumer } = subscription;
      consumers.add(consumer);
      const deliver = (delivery: Delivery) => {
        begin(consumer, delivery);
        return subscription.deliver(watched(consumer, delivery));
      };
      return inner.receive({ ...subscription, deliver }, signal);
    },
  };
}
