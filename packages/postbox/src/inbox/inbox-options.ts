import { ConfigError } from "../errors.js";
import type { Message } from "../message/message.js";
import { callback, checkOptions, count, flag, given, type OptionRule, oneOf, positive } from "../options.js";
import type { RememberOptions } from "../store.js";

/** Options of `inbox`. */
export interface InboxOptions {
  /**
   * Identifies a message: a consumer treats two messages with the same result as one. If it returns undefined, the
   * message is parked. Defaults to the message's id. If ids are unique per source only, use `({ source, id }) => source
   * + " " + id`.
   */
  readonly id?: (message: Message) => string | undefined;
  /**
   * Stores a hash of the data. A message with a known id and other data is then parked and reported. Defaults to false.
   */
  readonly detectMismatch?: boolean;
  /** Stores the data, too. Defaults to false. */
  readonly storePayload?: boolean;
  /**
   * How long to remember an id, counted from its arrival, or from the message's own `time` if that is later. A message
   * whose `time` is older than this, and whose id is not remembered, is parked, since it may have been handled. Must be
   * longer than the broker's redelivery window. Defaults to 30 days.
   */
  readonly retentionMs?: number;
  /** How often to delete ids that are older than that. Defaults to 3,600,000. */
  readonly cleanIntervalMs?: number;
  /** How long a message waits while another delivery of it is handled. Defaults to 5,000. */
  readonly lockTimeoutMs?: number;
  /** The longest pause between two polls of the consumer's box. Defaults to 1,000; for `durableInbox`, 100. */
  readonly pollIntervalMs?: number;
  /** How long this process owns lanes of the box without renewing its lease. Defaults to 15,000. */
  readonly leaseMs?: number;
  /** Whether the key of a parked message continues in the box: `continue` or `hold`. Defaults to `continue`. */
  readonly onPark?: "continue" | "hold";
}

/** Options of `durableInbox`. */
export interface DurableInboxOptions extends InboxOptions {
  /** The most messages to store at once. Defaults to 200. */
  readonly batchSize?: number;
}

const dayMs = 24 * 3_600_000;

const retention: OptionRule = {
  expected: "a number of milliseconds above 0, up to ten years",
  test: (value) => typeof value === "number" && value > 0 && value <= 3_650 * dayMs,
};

const rules = {
  id: callback,
  detectMismatch: flag,
  storePayload: flag,
  retentionMs: retention,
  cleanIntervalMs: positive,
  lockTimeoutMs: {
    expected: "a number of milliseconds above 0, up to an hour",
    test: (value: unknown) => typeof value === "number" && value > 0 && value <= 3_600_000,
  },
  pollIntervalMs: positive,
  leaseMs: positive,
  onPark: oneOf("continue", "hold"),
};

/** The options with their defaults. */
export type CheckedInbox = Required<DurableInboxOptions> & { readonly remember: RememberOptions };

export function checkInbox(
  owner: "inbox" | "durableInbox",
  options: DurableInboxOptions,
  pollIntervalMs: number,
): CheckedInbox {
  checkOptions(owner, options, owner === "inbox" ? rules : { ...rules, batchSize: count });
  const defaults = {
    id: ({ id }: Message) => id,
    detectMismatch: false,
    storePayload: false,
    retentionMs: 30 * dayMs,
    cleanIntervalMs: 3_600_000,
    lockTimeoutMs: 5_000,
    pollIntervalMs,
    leaseMs: 15_000,
    onPark: "continue" as const,
    batchSize: 200,
  };
  const checked: typeof defaults & DurableInboxOptions = given(defaults, options);
  const { pollIntervalMs: pauseMs, leaseMs } = checked;
  if (pauseMs >= leaseMs / 3) {
    const text =
      `${owner}: pollIntervalMs (${pauseMs}) must be below a third of leaseMs (${leaseMs}); ` +
      `raise leaseMs above ${pauseMs * 3}, or lower pollIntervalMs`;
    throw new ConfigError("option-invalid", text, { path: "pollIntervalMs" });
  }
  return { ...checked, remember: { retentionMs: checked.retentionMs, lockTimeoutMs: checked.lockTimeoutMs } };
}
