import { expect, test } from "vitest";
import { type BoxSight, boxProblems } from "./box-problems.js";
import { checkHealth } from "./health-options.js";

const minute = 60_000;
const relay = { owner: "relay-1", order: "key", lanes: 64, beat: 100 } as const;
const well: BoxSight = {
  unowned: 0,
  unsentUnowned: false,
  relays: [relay],
  parked: 0,
  heldForGood: 0,
  heldKeys: [],
};
const old = { id: "m", topic: "orders", ageMs: 2 * minute, status: "pending" } as const;

const textOf = (sight: Partial<BoxSight>, box = "outbox") =>
  boxProblems(box, { ...well, ...sight }, checkHealth())
    .map(({ text }) => text)
    .join("\n");

test.each<[string, Partial<BoxSight>, RegExp]>([
  [
    "that relays cannot send",
    {},
    /m to orders, was appended 2 min.*1 min is the limit: 1 relay is running, but cannot send/,
  ],
  ["that no relay runs", { relays: [] }, /no relay is running; start one/],
  ["that the box is paused", { pausedAt: new Date() }, /the box is paused; call admin\.resume/],
  ["that lanes have no owner", { unowned: 3 }, /3 lanes of 64 have no owner; see lanes-unowned/],
])("an old message is reported with its reason: %s", (_, sight, text) => {
  expect(textOf({ unsent: old, ...sight })).toMatch(text);
});

test("a consumer's box is described as one that handles", () => {
  const text = textOf({ unsent: old, relays: [] }, "inbox/other");
  expect(text).toContain("no instance of the consumer other is running; start one");
  expect(text).not.toMatch(/relay|unsent|sent\b/);
  expect(textOf({ unsent: old }, "inbox/other")).toContain("a handler may also wait for a connection of its pool");
});

test("a paused box says for how long, and what is parked how much it is", () => {
  expect(textOf({ pausedAt: new Date(), pausedForMs: 5 * minute })).toContain("paused for 5 min");
  expect(textOf({ parked: 3 })).toContain("3 messages of outbox are parked, and the limit is 0");
});

test("more relays than lanes is a reason of its own", () => {
  const relays = Array.from({ length: 65 }, (_, n) => ({ ...relay, owner: `relay-${n}`, lanes: n === 64 ? 0 : 1 }));
  expect(textOf({ relays })).toContain("there are only 64 lanes; run fewer relays");
});

test("an older message that fails otherwise does not hide one that waits for a queue", () => {
  const retried = { ...old, id: "older", ageMs: 3 * minute, attempts: 4, lastError: "[publish-failed] refused" };
  const unroutable = { ...old, id: "new", ageMs: 2 * minute, attempts: 0, lastError: "[unroutable] no queue is bound" };
  const found = boxProblems("outbox", { ...well, retried, unroutable }, checkHealth());
  expect(found).toMatchObject([{ code: "retried-too-long", severity: "warning", id: "new" }]);
  const both = boxProblems("outbox", { ...well, retried: unroutable, unroutable }, checkHealth());
  expect(both).toHaveLength(1);
});

test.each([
  ["[unroutable] no queue is bound", minute + 1, ["warning"], /messaging\.prepare\(\) of its consumer makes the queue/],
  ["[unroutable] no queue is bound", 16 * minute, ["error"], /Later messages of its key wait behind it/],
  ["[unroutable] no queue is bound", minute, [], /^$/],
  ["[publish-failed] refused", minute + 1, [], /^$/],
  ["[publish-failed] refused", 16 * minute, ["warning"], /remove it with admin\.discard/],
])("a message that fails over %s for %d ms is %j", (lastError, ageMs, severities, text) => {
  const retried = { ...old, ageMs, attempts: 0, lastError };
  expect(boxProblems("outbox", { ...well, retried }, checkHealth()).map(({ severity }) => severity)).toEqual(
    severities,
  );
  expect(textOf({ retried })).toMatch(text);
});
