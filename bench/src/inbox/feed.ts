import type { Message, Receiver } from "postbox";
import type { Delivery } from "postbox/transport";

/** A receiver with all messages in memory. It delivers them as fast as the router accepts them. */
export interface Feed extends Receiver {
  /** The number of acked messages. Any other settlement is an error of the benchmark. */
  readonly acked: number;
}

/** The most unsettled deliveries at a time, as with a broker. */
const prefetch = 1000;
const done = Promise.resolve();

/** Delivers each message once, with this attempt number. */
export function createFeed(messages: readonly Message[], attempt: number): Feed {
  let acked = 0;
  let unsettled = 0;
  let settled = () => {};

  const ended = (): Promise<void> => {
    unsettled--;
    settled();
    return done;
  };
  const deliveryOf = (message: Message): Delivery => ({
    message,
    attempt,
    ack() {
      acked++;
      return ended();
    },
    retry: ended,
    park: ended,
    release: ended,
  });
  const fewerThan = async (most: number): Promise<void> => {
    while (unsettled >= most) {
      await new Promise<void>((resolve) => {
        settled = resolve;
      });
    }
  };

  return {
    name: "feed",
    get acked() {
      return acked;
    },
    async receive({ deliver }, signal) {
      for (const message of messages) {
        if (unsettled >= prefetch) await fewerThan(prefetch);
        if (signal.aborted) break;
        unsettled++;
        await deliver(deliveryOf(message));
      }
      if (!signal.aborted) {
        await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
      }
      await fewerThan(1);
    },
  };
}
