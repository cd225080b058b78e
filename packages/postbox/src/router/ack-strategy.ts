import type { Delivery } from "../transport.js";
import type { ForwardAck, ManualAck } from "./context.js";
import type { Handled } from "./handle.js";

/** When a message is acked: after its handler, by its handler, or after everything it led to. */
export type AckStrategyName = "on-success" | "manual" | "forward";

/** What a strategy does with one delivery. */
export interface Acking {
  /** What the strategy adds to the handler's context. */
  readonly context: object;
  /**
   * Called once the handler and all middleware have succeeded. Resolves when the message is settled as far as the
   * strategy goes; `holdsSlot` says whether the next message has to wait for that.
   */
  succeeded(handled: Handled): Promise<void>;
  readonly holdsSlot: boolean;
}

export const ackStrategies: Readonly<Record<AckStrategyName, (delivery: Delivery) => Acking>> = {
  "on-success": (delivery) => ({ context: {}, holdsSlot: true, succeeded: () => delivery.ack() }),

  manual: (delivery) => ({
    context: {
      delivery: {
        ack: () => delivery.ack(),
        retry: (delayMs) => delivery.retry(delayMs),
        park: (reason) => delivery.park(reason),
        release: () => delivery.release(),
      },
    } satisfies ManualAck,
    holdsSlot: true,
    // Only a handler that returned has taken over the settling. What a middleware ended, nobody else would ever settle.
    succeeded: (handled) => (handled === "by-handler" ? Promise.resolve() : delivery.ack()),
  }),

  forward: (delivery) => {
    const forwarded: Promise<unknown>[] = [];
    return {
      context: {
        forward(published) {
          // Its failure is dealt with in succeeded(); until then nobody listens, which must not end the process.
          published.catch(() => {});
          forwarded.push(published);
        },
      } satisfies ForwardAck,
      // Confirms take a round trip each: the next message is handled while they are on their way.
      holdsSlot: false,
      async succeeded() {
        await Promise.all(forwarded);
        await delivery.ack();
      },
    };
  },
};
