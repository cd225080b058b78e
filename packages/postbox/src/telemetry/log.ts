import { scrub } from "../internal/scrub.js";
import { checkOptions, flag } from "../options.js";
import { inboxOf } from "../store.js";
import { adviceFor } from "./advice.js";
import type { Telemetry, TelemetryEvent } from "./events.js";

/** The methods of `console` and most loggers. A level without a method is not logged. */
export interface TextLogger {
  trace?(text: string): void;
  debug(text: string): void;
  info(text: string): void;
  warn(text: string): void;
  error(text: string): void;
}

/** The methods of pino and bunyan: fields first, then the text. */
export interface FieldLogger {
  trace?(fields: object, text: string): void;
  debug(fields: object, text: string): void;
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
}

/** Options of `logTo`. */
export interface LogOptions {
  /**
   * Whether the logger takes fields, as pino and bunyan do: an event's fields are passed as such, and an error with its
   * stack as `err`. By default, this is detected.
   */
  readonly fields?: boolean;
}

export type Level = keyof TextLogger;

/** The events that someone should look at. All others are routine. */
const levels: Partial<Record<TelemetryEvent["name"], Level>> = {
  "notifier.failed": "warn",
  "relay.listening": "debug",
  "relay.listen-failed": "warn",
  "relay.owned": "info",
  "relay.released": "info",
  "relay.lost": "warn",
  "relay.server-changed": "warn",
  "relay.blocked": "warn",
  "relay.paused": "warn",
  "relay.resumed": "info",
  "relay.failed": "error",
  "schedule.ticked": "debug",
  "schedule.skipped": "info",
  "schedule.failed": "error",
  // `relay.failed` reports it with its cause and delay.
  "breaker.opened": "debug",
  "breaker.closed": "info",
  "scope.unavailable": "warn",
  "scope.available": "info",
  "message.sent": "debug",
  "message.failed": "warn",
  "message.held": "debug",
  "message.suspected": "warn",
  "message.parked": "error",
  // The user chose this for the message.
  "message.dropped": "info",
  "publisher.dropped": "warn",
  "delivery.handled": "debug",
  "delivery.skipped": "debug",
  "delivery.ignored": "debug",
  "delivery.released": "debug",
  "delivery.revoked": "debug",
  "delivery.retried": "warn",
  "delivery.parked": "error",
  "delivery.abandoned": "warn",
  "delivery.slow": "warn",
  "consumer.types-differ": "warn",
  "transport.connected": "info",
  "transport.lost": "warn",
  "transport.blocked": "warn",
  "transport.unblocked": "info",
  "router.failed": "error",
  "router.constrained": "warn",
  "router.unordered": "warn",
  "router.abandoned": "warn",
};

const inboxes = inboxOf("");

/**
 * The level of an event. The steps of a message are for tracing. A handler's failure, and what a stop gives up on, are
 * reported twice, for the delivery and for its row in the box: only one of the two is a warning.
 */
export function levelOf(event: TelemetryEvent): Level {
  if (event.name === "delivery.abandoned" && codeOf(event.error) === "stop-timeout") return "trace";
  // A lost connection revokes many deliveries at once, and is reported itself.
  if (event.name === "delivery.abandoned" && codeOf(event.error) === "delivery-revoked") return "debug";
  // An instance with a handler gets it: `consumer.types-differ` reports each type once.
  if (event.name === "delivery.retried" && codeOf(event.error) === "no-handler") return "debug";
  // After a crash, every message that may have been in flight is suspected once. Only the second time is of interest.
  if (event.name === "message.suspected" && event.crashes < 2) return "debug";
  const isRow = event.name === "message.failed" || event.name === "message.parked";
  if (isRow && event.box.startsWith(inboxes) && codeOf(event.error) !== "message-suspect") return "trace";
  return levels[event.name] ?? "trace";
}

/**
 * Logs each event as one line: parked messages and failures as errors, retries as warnings, the outcome of each message
 * at debug level, and its steps at trace level. Passwords and tokens in error texts are removed. `createRelay(store,
 * sender, { telemetry: logTo(console) })`
 *
 * @example
 * ```ts
 * const relay = createRelay(store, sender, { telemetry: logTo(console) });
 * ```
 */
export function logTo(logger: TextLogger | FieldLogger, options: LogOptions = {}): Telemetry {
  checkOptions("logTo", options, { fields: flag });
  const { fields = takesFields(logger) } = options;
  return (event) => {
    const level = levelOf(event);
    if (fields) (logger as FieldLogger)[level]?.(fieldsOf(event), event.name);
    // `console.trace` would print a stack.
    else if (level !== "trace" || logger !== console) (logger as TextLogger)[level]?.(lineOf(event));
  };
}

/** The event as one line of text, with what to do about it unless its error says that. */
export function lineOf(event: TelemetryEvent): string {
  const { name, ...details } = event;
  const fields = Object.entries(details).map(([key, value]) => `${key}=${shown(value)}`);
  const advice = adviceFor(event);
  return `${name} ${fields.join(" ")}${advice === undefined ? "" : `: ${advice}`}`;
}

function fieldsOf({ name, ...details }: TelemetryEvent): object {
  if (!("error" in details)) return { event: name, ...details };
  const { error, ...rest } = details;
  return { event: name, ...rest, err: scrubbed(error) };
}

/** The same error without secrets in its text, stack and code. */
function scrubbed(error: Error): Error {
  const text = scrub(error.message);
  if (text === error.message) return error;
  const copy = Object.assign(new Error(text), { ...error, name: error.name });
  copy.stack = scrub(error.stack ?? "");
  return copy;
}

/** pino has `bindings()`, bunyan `fields`. Any other logger takes a text. */
function takesFields(logger: object): boolean {
  return "bindings" in logger || "fields" in logger;
}

function codeOf(error: Error): unknown {
  return (error as { readonly code?: unknown }).code;
}

function shown(value: unknown): string {
  if (value instanceof Error) return JSON.stringify(scrub(value.message));
  // JSON would say null.
  if (value === Number.POSITIVE_INFINITY) return String(value);
  return typeof value === "string" && /^[\w.:/-]+$/.test(value) ? value : JSON.stringify(value);
}
