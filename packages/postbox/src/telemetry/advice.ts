import type { TelemetryEvent } from "./events.js";

/** What to do about a warning that carries no error, whose text would say so. */
const advice: Partial<Record<TelemetryEvent["name"], string>> = {
  "relay.lost":
    "its lease expired, and another relay sends these messages again; look for a blocked event loop or a slow database",
  "relay.server-changed": "a failover, or another server behind the address; the relay reads everything again",
  "relay.blocked": "an open transaction may still append an earlier message; end it if it stays open",
  "relay.paused": "an operator has called admin.pause, and nothing is sent; admin.audit says who, admin.resume ends it",
  "message.suspected":
    "it was in flight in several crashes; it is sent alone, and parked at the fourth: look at it with admin.get",
  "consumer.types-differ":
    "no handler here, so the message waits for an instance that has one, and is parked after unknownWaitMs: finish " +
    "the deployment, or register a handler",
  "transport.blocked": "the broker accepts no messages; check its memory, its disk and its alarms",
};

/** What to do about an event; undefined for one that needs no action, or whose error says it. */
export function adviceFor({ name }: TelemetryEvent): string | undefined {
  return advice[name];
}
