import { createRelay, type Message, type Relay, type RelayOptions, type Sender, type Store } from "postbox";
import type { StoreHarness } from "../store-suite/store-harness.js";
import { type TelemetryLog, telemetryLog } from "../telemetry-log.js";

/** For receivers without a broker. Short, but long enough that no lease expires on a slow machine. */
export const receiverTiming = { leaseMs: 3_000, pollIntervalMs: 20 } as const;
export const timing = { ...receiverTiming, publishTimeoutMs: 900 } as const;

/** Long enough that nothing happens without `harness.advance`. */
export const anHourMs = 3_600_000;

/** A relay with a log of its events. */
export interface RelayRun extends Relay {
  readonly log: TelemetryLog;
}

export function relayOn<Tx>(store: Store<Tx>, sender: Sender, options: RelayOptions = {}): RelayRun {
  const log = telemetryLog();
  return { ...createRelay(store, sender, { ...timing, ...options, telemetry: log.telemetry }), log };
}

/** Runs `work` while the relay runs, and stops the relay in any case. */
export async function whileRunning(relay: Relay, work: () => Promise<void>): Promise<void> {
  relay.start();
  try {
    await work();
  } finally {
    await relay.stop();
  }
}

/** Appends messages in a transaction of their own. */
export async function commit<Tx>({ store }: StoreHarness<Tx>, ...messages: Message[]): Promise<void> {
  await store.transaction((tx) => store.append(tx, "outbox", messages));
}
