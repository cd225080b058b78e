import type { Store } from "../store.js";
import type { Receiver } from "../transport.js";
import { outboxDrainLoop } from "./outbox-drain-loop.js";
import { type OwnPurgeOptions, type RelayOptions, relayRules } from "./relay-options.js";
import { createSource } from "./sending/source.js";

const { batchSize: _, publishTimeoutMs: __, ...rules } = relayRules;

/** The options of a relay, without those that only a sender needs. */
export type OutboxReceiverOptions = Omit<RelayOptions, "batchSize" | "publishTimeoutMs">;

/**
 * Handles an outbox without a broker: a receiver for `router.run` that delivers every message of the box, whatever its
 * type.
 *
 * How the consumer settles a delivery is stored on the message's row: `ack` as sent, `park` as rejected. `retry` spends
 * an attempt, waits for the given delay, and parks the message once `maxAttempts` are spent. `release` stores nothing.
 * The first three resolve when that has committed. If the lane was lost before, they reject with `delivery-revoked`,
 * and another receiver delivers the message again.
 *
 * Messages of one key are delivered one at a time; with `order: "total"`, all messages are. At most `maxInFlight`
 * deliveries are unsettled. A handler may take as long as it likes.
 *
 * Each `receive` shares the lanes with other receivers and with relays of the same box, and only one of them gets a
 * message. So let a box have one kind of reader.
 *
 * @example
 * ```ts
 * const router = createRouter("mail").on(OrderPlaced, async (order) => console.log(order.orderId));
 * await router.start(outboxReceiver(store));
 * ```
 */
export function outboxReceiver<S extends Store>(
  store: S,
  options: OutboxReceiverOptions & OwnPurgeOptions<S> = {} as OutboxReceiverOptions & OwnPurgeOptions<S>,
): Receiver {
  const { drainLoop, leaseMs, runtime } = outboxDrainLoop("outboxReceiver", store, options, rules);
  return createSource({ name: `the outbox of ${store.name}`, shunMs: leaseMs, runtime }, drainLoop.run);
}
