import { scrub } from "../internal/scrub.js";
import type { Telemetry, TelemetryEvent } from "./events.js";

/** What `console`, pino and most other loggers have. */
export interface Logger {
  debug(text: string): void;
  info(text: string): void;
  warn(text: string): void;
  error(text: string): void;
}

type Level = keyof Logger;

/** What somebody should look at. Everything else is for debugging. */
const levels: Partial<Record<TelemetryEvent["name"], Level>> = {
  "hint.failed": "warn",
  "relay.listening": "info",
  "relay.deaf": "warn",
  "relay.owned": "info",
  "relay.released": "info",
  "relay.lost": "warn",
  "relay.server-changed": "warn",
  "relay.blocked": "warn",
  "relay.paused": "warn",
  "relay.resumed": "info",
  "relay.failed": "error",
  "breaker.opened": "warn",
  "breaker.closed": "info",
  "message.failed": "warn",
  "message.suspected": "warn",
  "message.parked": "error",
  "message.dropped": "warn",
  "publisher.dropped": "warn",
  "delivery.retried": "warn",
  "delivery.parked": "error",
  "consumer.types-differ": "warn",
  "transport.connected": "info",
  "transport.lost": "warn",
  "transport.blocked": "warn",
  "transport.unblocked": "info",
  "router.failed": "error",
};

/**
 * A telemetry listener that writes one line per event: parked messages and failures as errors, retries as warnings, the
 * ordinary course of things for debugging. Passwords and tokens in the text of an error are left out.
 * `createRelay(store, sender, { telemetry: logTo(console) })`
 */
export function logTo(logger: Logger): Telemetry {
  return (event) => {
    const { name, ...details } = event;
    const fields = Object.entries(details).map(([key, value]) => `${key}=${shown(value)}`);
    logger[levels[name] ?? "debug"](`${name} ${fields.join(" ")}`);
  };
}

function shown(value: unknown): string {
  if (value instanceof Error) return JSON.stringify(scrub(value.message));
  return typeof value === "string" && /^[\w.:/-]+$/.test(value) ? value : JSON.stringify(value);
}
