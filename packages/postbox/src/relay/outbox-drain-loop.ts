import { exponential } from "../backoff.js";
import { ConfigError } from "../errors.js";
import { runtimeWith } from "../internal/runtime.js";
import { defaultNotifier } from "../notifier.js";
import { checkOptions, type OptionRule } from "../options.js";
import { outboxBox } from "../outbox/outbox.js";
import type { Store } from "../store.js";
import { telling } from "../telemetry/telling.js";
import type { DrainLoopOptions } from "./context.js";
import { createDrainLoop } from "./drain-loop.js";
import { checkRelayOptions, type RelayOptions, relayRules } from "./relay-options.js";

/**
 * Checks the options in the name of `owner` and makes the loop that drains an outbox, along with the options that its
 * target needs too.
 */
export function outboxDrainLoop<Tx>(
  owner: string,
  store: Store<Tx>,
  options: RelayOptions,
  rules: Readonly<Record<string, OptionRule>> = relayRules,
) {
  if (typeof store?.box !== "function") {
    throw new ConfigError("option-invalid", `${owner}: give a store, such as postgresStore({ pool })`);
  }
  const { purgeRules = {} } = store;
  checkOptions(owner, options, { ...rules, ...purgeRules });
  const { pollIntervalMs = 500, batchSize = 500, leaseMs = 15_000 } = options;
  const { publishTimeoutMs = "publishTimeoutMs" in rules ? 4_000 : leaseMs / 4 } = options;
  checkRelayOptions(owner, options, { pollIntervalMs, publishTimeoutMs, leaseMs }, Object.keys(purgeRules));
  const notifier = options.notifier ?? defaultNotifier(store);
  const shared = {
    leaseMs,
    publishTimeoutMs,
    backoff: options.backoff ?? exponential(),
    runtime: runtimeWith(options.runtime),
    telemetry: telling(options.telemetry),
  };
  const drainLoop = createDrainLoop(store, {
    ...shared,
    box: outboxBox,
    order: options.order ?? "key",
    holdParked: options.onPark === "hold",
    onExpired: options.onExpired ?? "park",
    batchSize,
    maxInFlight: options.maxInFlight ?? 1000,
    maxInFlightBytes: options.maxInFlightBytes ?? 16 * 1024 * 1024,
    maxAttempts: options.maxAttempts ?? 10,
    pollIntervalMs,
    keep: options.onSent === "keep",
    ...(options.isPermanent && { isPermanent: options.isPermanent }),
    ...retentionOf(options, purgeRules),
    ...(notifier && { notifier }),
    scheduled: true,
  });
  return { drainLoop, ...shared };
}

function retentionOf(options: RelayOptions, purgeRules: object): Pick<DrainLoopOptions, "retention"> {
  const { retentionMs, cleanIntervalMs = 600_000, archive } = options;
  if (retentionMs === undefined) return {};
  const own = Object.fromEntries(Object.entries(options).filter(([name]) => Object.hasOwn(purgeRules, name)));
  return { retention: { retentionMs, cleanIntervalMs, own, ...(archive && { archive }) } };
}
