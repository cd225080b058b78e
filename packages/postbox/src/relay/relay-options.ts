import type { PurgeOptions } from "../admin.js";
import type { Backoff } from "../backoff.js";
import { ConfigError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import { type Notifier, notifierRule } from "../notifier.js";
import { callback, count, type OptionRule, object, oneOf, positive } from "../options.js";
import type { Order, Store } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";

/** Options of `createRelay`. */
export interface RelayOptions {
  /**
   * `key`: messages of one key are sent in order, different keys concurrently. `total`: all messages are sent in the
   * order of their appends, one at a time; one relay works, the others stand by, and a message that fails holds up all
   * others. `none`: messages are sent independently. All relays of a box need the same order; change it while the box
   * is empty. Defaults to `key`.
   */
  readonly order?: Order;
  /** The longest pause between two polls of the box; shorter while there is work. Defaults to 500. */
  readonly pollIntervalMs?: number;
  /**
   * Wakes the relay when an outbox with the same notifier has appended, such as `postgresNotifier({ pool })`. The relay
   * still polls, since a notification may be lost. `false`: it only polls. Defaults to one that hears the outboxes of
   * this process that work on the same store object.
   */
  readonly notifier?: Notifier | false;
  /** The most messages that the sender gets in one call. Defaults to 500. */
  readonly batchSize?: number;
  /**
   * The most messages in flight. Up to twice as many more may be sent but not settled yet; after a crash, all of these
   * are sent again. Defaults to 1,000.
   */
  readonly maxInFlight?: number;
  /** The most bytes in flight; a single larger message is still sent, alone. Defaults to 16 MiB. */
  readonly maxInFlightBytes?: number;
  /** What happens to a message that was sent: `delete` it, or `keep` it in `outbox_done`. Defaults to `delete`. */
  readonly onSent?: "delete" | "keep";
  /**
   * How long a sent message is kept at least, with `onSent: "keep"`. Then one of the relays removes it. Defaults to
   * keeping it until you call `store.purge`.
   */
  readonly retentionMs?: number;
  /** How often to remove messages that have been kept for `retentionMs`. Defaults to 600,000. */
  readonly cleanIntervalMs?: number;
  /** Receives everything before it is removed: see `PurgeOptions`. Defaults to nothing. */
  readonly archive?: PurgeOptions["archive"];
  /**
   * What happens to a message whose `expirytime` passes before it is sent, by this host's clock. `park` sets it aside,
   * `drop` leaves only its id in the audit, `send` sends it anyway. Defaults to `park`.
   */
  readonly onExpired?: "park" | "drop" | "send";
  /** How many attempts a message has before it is parked. Outages of the broker spend none. Defaults to 10. */
  readonly maxAttempts?: number;
  /**
   * The delay between attempts, and between connections while the broker is unreachable. While the database is
   * unreachable, delays are at most a tenth of `leaseMs`. Defaults to `exponential()`.
   */
  readonly backoff?: Backoff;
  /**
   * Whether a failure can never succeed, besides those that the sender rejects. The message is parked at once. Defaults
   * to none.
   */
  readonly isPermanent?: (error: Error) => boolean;
  /**
   * What a parked message does to its key, with `order: "key"`. `continue` sends the next ones. `hold` lets them wait
   * until an operator retries or discards it, or releases the key: see `store.admin`. Defaults to `continue`.
   */
  readonly onPark?: "continue" | "hold";
  /**
   * How long this relay owns its lanes without a renewal; after a crash, other relays take over then. Defaults to
   * 15,000.
   */
  readonly leaseMs?: number;
  /** How long the broker may take to confirm a batch; below a third of `leaseMs`. Defaults to 4,000. */
  readonly publishTimeoutMs?: number;
  /** Receives the relay's events. Defaults to warnings and errors on the console; `silent` turns that off. */
  readonly telemetry?: Telemetry;
  /** @experimental Time, randomness and failpoints. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

/** The options of `purge` that only this store has; relays on it take them, too. */
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

/** Checks what the rules of single options cannot, in the name of `owner`. */
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
    throw new ConfigError(
      "option-invalid",
      `${owner}: onPark: "hold" has no effect with order: "${order}", which ignores keys; remove one of them`,
      {
        path: "onPark",
      },
    );
  }
  checkRetention(owner, options, ownPurgeOptions);
}

function checkRetention(owner: string, options: RelayOptions, own: readonly string[]): void {
  const { onSent, retentionMs } = options;
  if (retentionMs !== undefined && onSent !== "keep") {
    throw new ConfigError(
      "option-invalid",
      `${owner}: retentionMs has no effect without onSent: "keep"; set both, or remove retentionMs`,
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
    `${owner}: ${name} (${value}) must be below a third of leaseMs (${leaseMs}); raise leaseMs above ${value * 3}, ` +
      `or lower ${name}`,
    { path: name },
  );
}
