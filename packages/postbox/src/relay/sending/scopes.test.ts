import { expect, it } from "vitest";
import { exponential } from "../../backoff.js";
import { runtimeWith } from "../../internal/runtime.js";
import { createMessage, type Message } from "../../message/message.js";
import type { TelemetryEvent } from "../../telemetry/events.js";
import { createScopes } from "./scopes.js";

const failure = new Error("no leader");

function scopesAt(scopeOf?: (message: Message) => string | undefined) {
  let now = 0;
  const events: TelemetryEvent[] = [];
  const scopes = createScopes({
    sender: { name: "test", ...(scopeOf && { scopeOf }) },
    boxName: "outbox",
    backoff: exponential({ initialMs: 100, maxMs: 1_000, jitter: 0 }),
    runtime: { ...runtimeWith(), monotonic: () => now },
    telemetry: (event) => events.push(event),
  });
  return { scopes, events, pass: (ms: number) => (now += ms) };
}

function to(topic: string): Message {
  return createMessage({ id: topic, type: `${topic}.Happened`, topic, source: "/test", data: new Uint8Array() });
}

it("closes a topic for a growing delay, and counts what was in flight together once", () => {
  const { scopes, events, pass } = scopesAt();
  expect(scopes.closedTo(to("a"))).toBeUndefined();
  expect(scopes.failed(to("a"), failure)).toBe(100);
  pass(40);
  expect(scopes.failed(to("a"), failure)).toBe(60);
  expect(scopes.closedTo(to("a"))).toMatchObject({ retryInMs: 60 });
  expect(scopes.closedTo(to("b"))).toBeUndefined();
  pass(60);
  expect(scopes.closedTo(to("a"))).toBeUndefined();
  expect(scopes.failed(to("a"), failure)).toBe(200);
  pass(200);
  scopes.sent(to("a"));
  expect(scopes.failed(to("a"), failure)).toBe(100);
  expect(events.map(({ name }) => name)).toEqual([
    "scope.unavailable",
    "scope.unavailable",
    "scope.available",
    "scope.unavailable",
  ]);
});

it("lets a message wait alone if its scope is unknown or cannot be determined", () => {
  for (const scopeOf of [
    () => undefined,
    () => {
      throw new Error("no such host");
    },
  ]) {
    const { scopes, events } = scopesAt(scopeOf);
    expect(scopes.failed(to("a"), failure)).toBe(100);
    expect(scopes.closedTo(to("a"))).toBeUndefined();
    scopes.sent(to("a"));
    expect(events).toEqual([]);
  }
});

it("forgets scopes whose delay is over, so that their number stays bounded", () => {
  const { scopes, events, pass } = scopesAt();
  for (let n = 0; n < 5_000; n++) {
    scopes.failed(to(`host-${n}`), failure);
    pass(101);
  }
  for (let n = 0; n < 5_000; n++) scopes.sent(to(`host-${n}`));
  expect(events.filter(({ name }) => name === "scope.available").length).toBeLessThanOrEqual(1_001);
});
