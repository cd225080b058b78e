import type { Store } from "../store.js";
import type { Receiver } from "../transport.js";
import { outboxDrainLoop } from "./outbox-drain-loop.js";
import { type OwnPurgeOptions, type RelayOptions, relayRules } from "./relay-options.js";
import { createSource } from "./sending/source.js";

const { batchSize: _, publishTimeoutMs: __, ...rules } = relayRules;

/** As of a relay, but for what a sender needs. */
export type OutboxReceiverOptions = Omit<RelayOptions, "batchSize" | "publishTimeoutMs">;

/**
 * Handles an outbox without a broker: a receiver for `router.run` that hands over every message of the box, whatever its type. What the
 * consumer says is stored for the message's row: `ack` as sent, `park` as rejected. `retry` spends an attempt, waits for the delay that
 * it is given, and parks when `maxAttempts` are spent; `release` stores nothing. The first three resolve when that has committed. If the
 * lane was lost before, they reject with `delivery-revoked`, and another receiver delivers the message again.
 *
 * One message of a key is handed over at a time, and with `order: "total"` one of all. At most `maxInFlight` are unsettled; a handler
 * may take as long as it likes. Each `receive` shares the lanes with others and with relays on the same box. One of them gets a
 * message, so let a box have one kind of reader.
 */
export function outboxReceiver<S extends Store>(
  store: S,
  options: OutboxReceiverOptions & OwnPurgeOptions<S> = {} as OutboxReceiverOptions & OwnPurgeOptions<S>,
): Receiver {
  const { drainLoop, leaseMs, runtime } = outboxDrainLoop("outboxReceiver", store, options, rules);
  return createSource({ name: `the outbox of ${store.name}`, shunMs: leaseMs, runtime }, drainLoop.run);
}
