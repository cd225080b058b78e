import type { Delivery } from "../transport.js";
import type { ForwardAck, ManualAck } from "./context.js";
import type { Handled } from "./handle.js";

/** When a message is acknowledged: after its handler, by its handler, or after all its outputs are confirmed. */
export type AckStrategyName = "on-success" | "manual" | "forward";

/** How a strategy acknowledges one delivery. */
export interface Acking {
  /** What the strategy adds to the handler's context. */
  readonly context: object;
  /**
   * Called once the handler and all middleware have succeeded. Resolves when the strategy has settled the message, as
   * far as it does; `holdsSlot` says whether the next message waits for that.
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
    // Only a handler that returned takes over the settlement. If a middleware ended the message, nothing else would
    // settle it.
    succeeded: (handled) => (handled === "by-handler" ? Promise.resolve() : delivery.ack()),
  }),

  forward: (delivery) => {
    const forwarded: Promise<unknown>[] = [];
    return {
      context: {
        forward(published) {
          // `succeeded` handles this failure. Until then it must not end the process as an unhandled rejection.
          published.catch(() => {});
          forwarded.push(published);
        },
      } satisfies ForwardAck,
      // Confirms take a round trip each, so the next message is handled meanwhile.
      holdsSlot: false,
      async succeeded() {
        await Promise.all(forwarded);
        await delivery.ack();
      },
    };
  },
};
