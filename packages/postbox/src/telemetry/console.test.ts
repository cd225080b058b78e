import { PostboxError } from "postbox";
import { beforeEach, expect, it, onTestFinished, vi } from "vitest";
import { toConsole } from "./console.js";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance", "setTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
});

function world() {
  const lines: string[] = [];
  const output = {
    warn: (text: string) => lines.push(`warn: ${text}`),
    error: (text: string) => lines.push(`error: ${text}`),
  };
  const shortened = () => lines.map((line) => line.replace(/ error="\[([\w-]+)\] [^"]*": .* for this box/, " $1"));
  return { lines, shortened, telemetry: toConsole(output), pass: (ms: number) => void vi.advanceTimersByTime(ms) };
}

const parked = (id: string, box = "outbox", code: "unroutable" | "attempts-spent" = "unroutable") =>
  ({
    name: "message.parked",
    box,
    id,
    type: "order.placed",
    error: new PostboxError(code, "no queue takes it; bind one"),
  }) as const;

it("writes warnings and errors where nobody listens, and nothing of the ordinary course of things", () => {
  const { telemetry, lines } = world();
  telemetry({ name: "relay.owned", box: "outbox", owner: "me", lanes: 64 });
  telemetry({ name: "message.sent", box: "outbox", id: "1", attempt: 1 });
  telemetry(parked("2"));
  telemetry({ name: "relay.paused", box: "outbox" });
  expect(lines).toEqual([
    "error: postbox: message.parked box=outbox id=2 type=order.placed " +
      'error="[unroutable] no queue takes it; bind one": ' +
      "correct the cause, then call admin.retry or admin.discard for this box",
    "warn: postbox: relay.paused box=outbox: an operator has called admin.pause, and nothing is sent; " +
      "admin.audit says who, admin.resume ends it",
  ]);
});

it("of those that are alike, writes one in a minute, with how many it left out", () => {
  const { telemetry, shortened, pass } = world();
  for (const id of ["1", "2", "3"]) telemetry(parked(id));
  telemetry(parked("4", "other"));
  telemetry(parked("5", "outbox", "attempts-spent"));
  telemetry({ ...parked("6"), type: "order.paid" });
  pass(59_999);
  telemetry(parked("7"));
  expect(shortened()).toEqual([
    "error: postbox: message.parked box=outbox id=1 type=order.placed unroutable",
    "error: postbox: message.parked box=other id=4 type=order.placed unroutable",
    "error: postbox: message.parked box=outbox id=5 type=order.placed attempts-spent",
    "error: postbox: message.parked box=outbox id=6 type=order.paid unroutable",
  ]);
  pass(60_000);
  telemetry(parked("8"));
  pass(60_000);
  expect(shortened().slice(4)).toEqual([
    "error: postbox: message.parked box=outbox id=7 type=order.placed unroutable (2 more like it since the last " +
      "one was written)",
    "error: postbox: message.parked box=outbox id=8 type=order.placed unroutable",
  ]);
});

it("writes a bounded number of lines, however many types there are", () => {
  const { telemetry, lines, pass } = world();
  for (let n = 0; n < 5_000; n++) telemetry({ ...parked(`${n}`), type: `type-${n}` });
  expect(lines).toHaveLength(101);
  pass(60_000);
  expect(lines).toHaveLength(102);
  expect(lines[101]).toContain("type=type-4999");
  expect(lines[101]).toContain("(4898 more like it since the last one was written)");
  telemetry({ ...parked("later"), type: "another" });
  expect(lines[102]).toContain("type=another");
});

it("writes what it left out when the process ends", () => {
  const before = new Set(process.listeners("exit"));
  const { telemetry, shortened, pass } = world();
  for (const id of ["1", "2", "3"]) telemetry(parked(id));
  const [atExit] = process.listeners("exit").filter((listener) => !before.has(listener));
  (atExit as () => void)();
  expect(shortened()).toEqual([
    "error: postbox: message.parked box=outbox id=1 type=order.placed unroutable",
    "error: postbox: message.parked box=outbox id=3 type=order.placed unroutable (1 more like it since the last " +
      "one was written)",
  ]);
  pass(60_000);
  expect(shortened()).toHaveLength(2);
});

it("writes one line of a broker that is away, however many connections lead to it", () => {
  const { telemetry, lines } = world();
  for (const [end, whose, place, text] of [
    ["sender", "postbox", "amqp://a/", "away"],
    ["receiver", "postbox on billing", "amqp://a/", "away"],
    ["receiver", "postbox on billing", "amqp://b/", "away"],
    ["receiver", "postbox on mail", "amqp://b/", "away"],
    ["receiver", "postbox on mail", "amqp://b/", "its queue has other arguments"],
  ] as const) {
    const error = new PostboxError("transport-down", text);
    telemetry({ name: "transport.lost", transport: "rabbitmq", end, whose, place, error });
  }
  expect(lines.map((line) => /whose="?([^"]*?)"? place=(\S+)/.exec(line)?.slice(1))).toEqual([
    ["postbox", "amqp://a/"],
    ["postbox on billing", "amqp://b/"],
    ["postbox on mail", "amqp://b/"],
  ]);
});
