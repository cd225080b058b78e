import { ConfigError } from "../errors.js";
import { nearestName } from "../options.js";
import type { InboxMode } from "./messaging.js";

/** The options that are set in the environment. */
export interface EnvMessagingOptions {
  readonly service?: string;
  readonly group?: string;
  readonly outbox?: boolean;
  readonly inbox?: InboxMode;
  readonly pollIntervalMs?: number;
  readonly batchSize?: number;
  readonly maxAttempts?: number;
  /** For `connectStore` of `postbox/connect`. `createMessaging` ignores it. */
  readonly databaseUrl?: string;
  /** For `connectTransport` of `postbox/connect`. `createMessaging` ignores it. */
  readonly brokerUrl?: string;
}

/** How to read a variable: undefined for an invalid value. */
interface Reading<T> {
  readonly option: keyof EnvMessagingOptions;
  readonly expected: string;
  read(text: string): T | undefined;
}

const flags: ReadonlyMap<string, boolean> = new Map([
  ["true", true],
  ["1", true],
  ["yes", true],
  ["false", false],
  ["0", false],
  ["no", false],
]);
const flag = (text: string) => flags.get(text.toLowerCase());
const mode = (text: string) => (text.toLowerCase() === "durable" ? "durable" : flag(text));
const count = (text: string) => {
  const value = /^\d+$/.test(text) ? Number(text) : 0;
  return Number.isSafeInteger(value) && value >= 1 ? value : undefined;
};
const url = (text: string) => (/^[a-z][a-z0-9+.-]*:\S*$/i.test(text) ? text : undefined);
const name = (text: string) => text;

const whole = "a whole number of at least 1";
const variables = {
  POSTBOX_SERVICE_NAME: { option: "service", expected: "the service's name", read: name },
  POSTBOX_CONSUMER_GROUP: { option: "group", expected: "a consumer's name", read: name },
  POSTBOX_ENABLE_OUTBOX: { option: "outbox", expected: "true or false (or 1, 0, yes, no)", read: flag },
  POSTBOX_ENABLE_INBOX: { option: "inbox", expected: "true, false (or 1, 0, yes, no) or durable", read: mode },
  POSTBOX_POLL_INTERVAL_MS: { option: "pollIntervalMs", expected: whole, read: count },
  POSTBOX_BATCH_SIZE: { option: "batchSize", expected: whole, read: count },
  POSTBOX_MAX_ATTEMPTS: { option: "maxAttempts", expected: whole, read: count },
  POSTBOX_DATABASE_URL: { option: "databaseUrl", expected: "a URL such as postgres://user@host/database", read: url },
  POSTBOX_BROKER_URL: { option: "brokerUrl", expected: "a URL such as memory:", read: url },
} satisfies Record<string, Reading<unknown>>;

const prefix = "POSTBOX_";
/** Variables of `@postbox/testkit`. */
const testPrefix = `${prefix}TEST_`;

/**
 * Reads options for `createMessaging` from variables such as `process.env`; the library itself never reads the
 * environment. An invalid or empty value throws, and so does an unknown variable that begins with `POSTBOX_`. No error
 * repeats a value, since it may contain a password.
 *
 * @example
 * ```ts
 * const messaging = createMessaging({
 *   ...messagingOptionsFromEnv({ POSTBOX_ENABLE_OUTBOX: "true", POSTBOX_ENABLE_INBOX: "true" }),
 *   service: "shop",
 *   store,
 *   sender,
 * });
 * ```
 */
export function messagingOptionsFromEnv(env: Readonly<Record<string, string | undefined>>): EnvMessagingOptions {
  const options: Partial<Record<keyof EnvMessagingOptions, unknown>> = {};
  for (const [variable, value] of Object.entries(env)) {
    if (value === undefined || !isOurs(variable)) continue;
    const { option, expected, read } = readingOf(variable);
    const text = value.trim();
    const result = text === "" ? undefined : read(text);
    if (result === undefined) {
      const found = text === "" ? "it is empty; unset it for the default" : "its value is something else";
      throw new ConfigError("option-invalid", `${variable} must be ${expected}; ${found}`, { path: variable });
    }
    options[option] = result;
  }
  return options as EnvMessagingOptions;
}

function isOurs(variable: string): boolean {
  const upper = variable.toUpperCase();
  return upper.startsWith(prefix) && !upper.startsWith(testPrefix);
}

function readingOf(variable: string): Reading<unknown> {
  if (Object.hasOwn(variables, variable)) return variables[variable as keyof typeof variables];
  const known = Object.keys(variables);
  const nearest = nearestName(variable, known);
  const advice = nearest === undefined ? `known are ${known.join(", ")}` : `did you mean ${nearest}?`;
  throw new ConfigError("option-unknown", `unknown variable ${variable}; ${advice}`, { path: variable });
}
