import { ConfigError } from "../errors.js";
import type { Message } from "../message/message.js";
import { callback, checkOptions, count, flag, given, type OptionRule, oneOf, positive } from "../options.js";
import type { RememberOptions } from "../store.js";

export interface InboxOptions {
  /**
   * What a message is known by; two of one consumer with the same are one message. Without an answer it is parked.
   * Defaults to its id; where ids are unique per source only, give `({ source, id }) => source + " " + id`.
   */
  readonly id?: (message: Message) => string | undefined;
  /**
   * Keeps a hash of the data: a message that comes with a known id and other data is parked and told. Defaults to
   * false.
   */
  readonly detectMismatch?: boolean;
  /** Remembers the data, too. Defaults to false. */
  readonly storePayload?: boolean;
  /**
   * How long an id is remembered: from its arrival, or from the message's own `time` where that is later. A message
   * whose `time` is further back, and whose id is not remembered, is parked: it may have been handled. Must be longer
   * than the broker may redeliver. Defaults to 30 days.
   */
  readonly retentionMs?: number;
  /** How often to forget what is older than that. Defaults to 3,600,000. */
  readonly cleanIntervalMs?: number;
  /** How long a message waits for the end of another handling of the same one. Defaults to 5,000. */
  readonly lockTimeoutMs?: number;
  /** The longest pause between two looks at the consumer's box. Defaults to 1,000; for `durableInbox`, 100. */
  readonly pollIntervalMs?: number;
  /** How long what was taken from the box stays this process's without a renewal. Defaults to 15,000. */
  readonly leaseMs?: number;
  /** What a parked message does to its key in the box: `continue` or `hold`. Defaults to `continue`. */
  readonly onPark?: "continue" | "hold";
}

export interface DurableInboxOptions extends InboxOptions {
  /** How many messages are stored at once, at most. Defaults to 200. */
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

/** Everything decided. */
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
  if (checked.pollIntervalMs >= checked.leaseMs / 3) {
    throw new ConfigError(
      "option-invalid",
      `${owner}: pollIntervalMs (${checked.pollIntervalMs}) must be below a third of leaseMs (${checked.leaseMs})`,
      { path: "pollIntervalMs" },
    );
  }
  return { ...checked, remember: { retentionMs: checked.retentionMs, lockTimeoutMs: checked.lockTimeoutMs } };
}
