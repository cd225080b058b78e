import type { PurgeOptions } from "../admin.js";
import type { Backoff } from "../backoff.js";
import { ConfigError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import { type Notifier, notifierRule } from "../notifier.js";
import { callback, count, type OptionRule, object, oneOf, positive } from "../options.js";
import type { Order, Store } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";

export interface RelayOptions {
  /**
   * `key`: messages of one key go out in order, all others side by side. `total`: all go out in the order of their
   * appends, one at a time; one relay works, others stand by, and one that fails holds up everything. `none`: each goes for
   * itself. The same for all relays of a box; change it when the box is empty. Defaults to `key`.
   */
  readonly order?: Order;
  /** The longest pause between two looks at the box; shorter while there is work. Defaults to 500. */
  readonly pollIntervalMs?: number;
  /**
   * Wakes the relay when an outbox with the same notifier has appended, such as `postgresNotifier({ pool })`. The relay polls as ever,
   * since a notification may be lost. `false`: it only polls. Defaults to one that hears the outboxes of this process that work on the
   * same store object.
   */
  readonly notifier?: Notifier | false;
  /** How many messages at most go to the sender in one call. Defaults to 500. */
  readonly batchSize?: number;
  /**
   * How many messages at most are on their way. Up to twice as many more may be sent and not settled yet; after a crash
   * all of these are sent again. Defaults to 1,000.
   */
  readonly maxInFlight?: number;
  /** How many bytes at most are on their way; one larger message still goes alone. Defaults to 16 MiB. */
  readonly maxInFlightBytes?: number;
  /** What becomes of a message that was sent: `delete`, or `keep` it in `outbox_done`. Defaults to `delete`. */
  readonly onSent?: "delete" | "keep";
  /**
   * For how long at least it is kept, with `onSent: "keep"`; then it is removed, by one of the relays at a time. Defaults to
   * until somebody calls `store.purge`.
   */
  readonly retentionMs?: number;
  /** How often to look for what was kept long enough. Defaults to 600,000. */
  readonly cleanIntervalMs?: number;
  /** Gets everything before it is removed: see `PurgeOptions`. Defaults to nothing. */
  readonly archive?: PurgeOptions["archive"];
  /**
   * What becomes of a message whose `expirytime` has passed before it is sent: it is parked, dropped, which leaves its id in
   * the audit, or sent all the same. By this host's clock. Defaults to `park`.
   */
  readonly onExpired?: "park" | "drop" | "send";
  /** Total tries of a message before it is parked. Outages of the broker spend none. Defaults to 10. */
  readonly maxAttempts?: number;
  /**
   * The delay between tries of a message, and while the broker is away. While the database is, no delay is longer than a tenth of
   * `leaseMs`. Defaults to `exponential()`.
   */
  readonly backoff?: Backoff;
  /** Which failures can never succeed, beside those the sender rejects: parked at once. Defaults to none. */
  readonly isPermanent?: (error: Error) => boolean;
  /**
   * What a parked message does to its key: `continue` lets the next ones go, `hold` lets them wait until somebody retries or
   * discards it, or releases the key: see `store.admin`. For `order: "key"`. Defaults to `continue`.
   */
  readonly onPark?: "continue" | "hold";
  /** How long lanes stay this relay's without a renewal; after a crash others take over then. Defaults to 15,000. */
  readonly leaseMs?: number;
  /** How long a batch may take to be confirmed; below a third of `leaseMs`. Defaults to 4,000. */
  readonly publishTimeoutMs?: number;
  /** Receives its events. Defaults to warnings and errors on the console; `silent` turns that off. */
  readonly telemetry?: Telemetry;
  /** @experimental Time, randomness and failpoints. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

/** What `purge` of a store has beside the options of every store: relays on it take these, too. */
export type OwnPurgeOptions<S> =
  S extends Pick<Store, "purge"> ? Omit<Parameters<S["purge"]>[0], keyof PurgeOptions> : unknown;

const retention: OptionRule = {
  expected: "a number of milliseconds above 0, up to a hundred years",
  test: (value) => typeof value === "number" && value > 0 && value <= 100 * 365 * 24 * 3_600_000,
};

export const relayRules = {
  order: oneOf("key", "total", "none"),
  pollIntervalMs: positive,
  notifier: notifierRule,
  batchSize: count,
  maxInFlight: count,
  maxInFlightBytes: count,
  onSent: oneOf("delete", "keep"),
  retentionMs: retention,
  cleanIntervalMs: positive,
  archive: callback,
  onExpired: oneOf("park", "drop", "send"),
  maxAttempts: count,
  backoff: callback,
  isPermanent: callback,
  onPark: oneOf("continue", "hold"),
  leaseMs: positive,
  publishTimeoutMs: positive,
  telemetry: callback,
  runtime: object,
};

/** Checks the options of a relay in the name of `owner`, beyond what each may be by itself. */
export function checkRelayOptions(
  owner: string,
  options: RelayOptions,
  { pollIntervalMs, publishTimeoutMs, leaseMs }: Record<"pollIntervalMs" | "publishTimeoutMs" | "leaseMs", number>,
  ownPurgeOptions: readonly string[],
): void {
  checkBelowThird(owner, "pollIntervalMs", pollIntervalMs, leaseMs);
  checkBelowThird(owner, "publishTimeoutMs", publishTimeoutMs, leaseMs);
  const { order = "key", onPark = "continue" } = options;
  if (onPark === "hold" && order !== "key") {
    throw new ConfigError("option-invalid", `${owner}: onPark: "hold" holds keys, which order: "${order}" has not`, {
      path: "onPark",
    });
  }
  checkRetention(owner, options, ownPurgeOptions);
}

function checkRetention(owner: string, options: RelayOptions, own: readonly string[]): void {
  const { onSent, retentionMs } = options;
  if (retentionMs !== undefined && onSent !== "keep") {
    throw new ConfigError(
      "option-invalid",
      `${owner}: retentionMs is for what is kept; give onSent: "keep" too, or leave it out`,
      { path: "retentionMs" },
    );
  }
  const given = options as Readonly<Record<string, unknown>>;
  const path = ["cleanIntervalMs", "archive", ...own].find((name) => given[name] !== undefined);
  if (path !== undefined && retentionMs === undefined) {
    throw new ConfigError("option-invalid", `${owner}: ${path} has no effect without retentionMs; set both`, {
      path,
    });
  }
}

function checkBelowThird(owner: string, name: string, value: number, leaseMs: number): void {
  if (value < leaseMs / 3) return;
  throw new ConfigError(
    "option-invalid",
    `${owner}: ${name} (${value}) must be below a third of leaseMs (${leaseMs}); raise leaseMs above ${value * 3}`,
    { path: name },
  );
}
