import { scrub } from "../internal/scrub.js";
import { checkOptions, flag } from "../options.js";
import { inboxOf } from "../store.js";
import type { Telemetry, TelemetryEvent } from "./events.js";

/** What `console` and most other loggers have. A level that a logger lacks is not logged. */
export interface TextLogger {
  trace?(text: string): void;
  debug(text: string): void;
  info(text: string): void;
  warn(text: string): void;
  error(text: string): void;
}

/** What pino and bunyan have: fields first, then the text. */
export interface FieldLogger {
  trace?(fields: object, text: string): void;
  debug(fields: object, text: string): void;
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
}

export interface LogOptions {
  /**
   * Whether the logger takes fields, as pino's and bunyan's do: then an event's fields are given as such, and an error
   * with its stack as `err`. Defaults to whether the logger looks like one of these.
   */
  readonly fields?: boolean;
}

export type Level = keyof TextLogger;

/** What somebody should look at. Everything else is the ordinary course of things. */
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
  // Reported with its cause and its delay as relay.failed.
  "breaker.opened": "debug",
  "breaker.closed": "info",
  "scope.unavailable": "warn",
  "scope.available": "info",
  "message.sent": "debug",
  "message.failed": "warn",
  "message.held": "debug",
  "message.suspected": "warn",
  "message.parked": "error",
  // What its user has chosen for it.
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
  "router.abandoned": "warn",
};

const inboxes = inboxOf("");

/**
 * How much attention an event deserves. One step of many on the way of a message is for tracing. What a consumer's
 * handler fails with is told twice, as its delivery and as the row in its box, and so is what a stop gives up on: once
 * is enough.
 */
export function levelOf(event: TelemetryEvent): Level {
  if (event.name === "delivery.abandoned" && codeOf(event.error) === "stop-timeout") return "trace";
  // A lost connection takes back many deliveries at once, and is reported itself.
  if (event.name === "delivery.abandoned" && codeOf(event.error) === "delivery-revoked") return "debug";
  // Left to an instance that has its handler: that of each type is reported once, as `consumer.types-differ`.
  if (event.name === "delivery.retried" && codeOf(event.error) === "no-handler") return "debug";
  // After a crash, each message that may have been in flight is suspected once: only one that was there twice is worth
  // a look.
  if (event.name === "message.suspected" && event.crashes < 2) return "debug";
  const isRow = event.name === "message.failed" || event.name === "message.parked";
  if (isRow && event.box.startsWith(inboxes) && codeOf(event.error) !== "message-suspect") return "trace";
  return levels[event.name] ?? "trace";
}

/**
 * A telemetry listener that writes one line per event: parked messages and failures as errors, retries as warnings,
 * what became of each message for debugging, and each step on its way for tracing. Passwords and tokens in the text of
 * an error are left out. `createRelay(store, sender, { telemetry: logTo(console) })`
 */
export function logTo(logger: TextLogger | FieldLogger, options: LogOptions = {}): Telemetry {
  checkOptions("logTo", options, { fields: flag });
  const { fields = takesFields(logger) } = options;
  return (event) => {
    const level = levelOf(event);
    if (fields) (logger as FieldLogger)[level]?.(fieldsOf(event), event.name);
    // What console.trace writes is a stack.
    else if (level !== "trace" || logger !== console) (logger as TextLogger)[level]?.(lineOf(event));
  };
}

/** As one line of text. */
export function lineOf(event: TelemetryEvent): string {
  const { name, ...details } = event;
  const fields = Object.entries(details).map(([key, value]) => `${key}=${shown(value)}`);
  return `${name} ${fields.join(" ")}`;
}

function fieldsOf({ name, ...details }: TelemetryEvent): object {
  if (!("error" in details)) return { event: name, ...details };
  const { error, ...rest } = details;
  return { event: name, ...rest, err: scrubbed(error) };
}

/** The same error without secrets, for whoever writes its text, its stack and its code. */
function scrubbed(error: Error): Error {
  const text = scrub(error.message);
  if (text === error.message) return error;
  const copy = Object.assign(new Error(text), { ...error, name: error.name });
  copy.stack = scrub(error.stack ?? "");
  return copy;
}

/** pino has `bindings()`, bunyan `fields`; where neither is, a text is what every logger takes. */
function takesFields(logger: object): boolean {
  return "bindings" in logger || "fields" in logger;
}

function codeOf(error: Error): unknown {
  return (error as { readonly code?: unknown }).code;
}

function shown(value: unknown): string {
  if (value instanceof Error) return JSON.stringify(scrub(value.message));
  return typeof value === "string" && /^[\w.:/-]+$/.test(value) ? value : JSON.stringify(value);
}
