import type { TelemetryEvent } from "./events.js";

/** What to do about a warning whose error, if it has one, does not say so. */
const advice: Partial<Record<TelemetryEvent["name"], string>> = {
  "relay.lost":
    "its lease expired, and another relay sends these messages again; look for a blocked event loop or a slow database",
  "relay.server-changed": "a failover, or another server behind the address; the relay reads everything again",
  "relay.blocked": "an open transaction may still append an earlier message; end it if it stays open",
  "relay.paused": "an operator has called admin.pause, and nothing is sent; admin.audit says who, admin.resume ends it",
  "message.suspected":
    "it was in flight in several crashes; it is sent alone, and parked at the fourth: look at it with admin.get",
  "message.parked": "correct the cause, then call admin.retry or admin.discard for this box",
  "delivery.parked":
    "correct the cause, then call admin.retry for the consumer's box; without an inbox, replay it from the broker's " +
    "parked messages",
  "consumer.types-differ":
    "no handler here, so the message waits for an instance that has one, and is parked after unknownWaitMs: finish " +
    "the deployment, or register a handler",
  "transport.blocked": "the broker accepts no messages; check its memory, its disk and its alarms",
};

/** What to do about an event; undefined for one that needs no action, or whose error says it. */
export function adviceFor(event: TelemetryEvent): string | undefined {
  const { name } = event;
  if ("retryInMs" in event && event.retryInMs === Number.POSITIVE_INFINITY) return ended;
  return advice[name];
}

const ended = "this part has ended and is not tried again; correct the cause, then start it again";
