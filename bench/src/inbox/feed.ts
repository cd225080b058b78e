import type { Message, Receiver } from "postbox";
import type { Delivery } from "postbox/transport";

/** A receiver that has all its messages at hand, and hands them over as fast as they are taken. */
export interface Feed extends Receiver {
  /** How many were acked. Anything else that becomes of one is an error of the benchmark. */
  readonly acked: number;
}

/** As many as a broker would let be unsettled. */
const prefetch = 1000;
const done = Promise.resolve();

/** Hands over each message once, as its nth delivery. */
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
