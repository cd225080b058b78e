import { PostboxError } from "postbox";
import { expect, it } from "vitest";
import { logTo } from "./log.js";

it("tells of a first suspicion for debugging, and warns of the next", () => {
  const logged: string[] = [];
  const at = (level: string) => () => logged.push(level);
  const telemetry = logTo({ debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") });
  for (const crashes of [1, 2]) telemetry({ name: "message.suspected", box: "outbox", id: "m1", crashes });
  expect(logged).toEqual(["debug", "warn"]);
});

it("writes one line per event, at the level that it deserves", () => {
  const lines: string[] = [];
  const at = (level: string) => (text: string) => lines.push(`${level}: ${text}`);
  const telemetry = logTo({ debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") });
  telemetry({ name: "message.sent", box: "outbox", id: "0192-1", attempt: 1 });
  telemetry({ name: "relay.owned", box: "outbox", owner: "me", lanes: 64 });
  telemetry({
    name: "delivery.retried",
    consumer: "billing",
    id: 'a "quoted"\nid',
    attempt: 2,
    retryInMs: 5,
    error: new Error("no\npaper"),
  });
  telemetry({ name: "router.failed", consumer: "billing", error: new PostboxError("unknown", "broken") });
  expect(lines).toEqual([
    "debug: message.sent box=outbox id=0192-1 attempt=1",
    "info: relay.owned box=outbox owner=me lanes=64",
    'warn: delivery.retried consumer=billing id="a \\"quoted\\"\\nid" attempt=2 retryInMs=5 error="no\\npaper"',
    'error: router.failed consumer=billing error="[unknown] broken"',
  ]);
});

it("gives fields to a logger that takes them, and errors with their stack", () => {
  const written: unknown[][] = [];
  const at =
    (level: string) =>
    (...given: unknown[]) =>
      written.push([level, ...given]);
  const pino = { trace: at("trace"), debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
  const telemetry = logTo({ ...pino, bindings: () => ({}) } as Parameters<typeof logTo>[0]);
  const error = new PostboxError("publish-failed", "the broker said no to amqp://me:secret@host");
  telemetry({ name: "message.failed", box: "outbox", id: "1", attempt: 2, retryInMs: 5, error });
  telemetry({ name: "delivery.received", consumer: "billing", id: "1", attempt: 1 });
  expect(written).toEqual([
    [
      "warn",
      { event: "message.failed", box: "outbox", id: "1", attempt: 2, retryInMs: 5, err: expect.any(Error) },
      "message.failed",
    ],
    ["trace", { event: "delivery.received", consumer: "billing", id: "1", attempt: 1 }, "delivery.received"],
  ]);
  const { err } = (written[0] as [string, { err: PostboxError }])[1];
  expect(err).toMatchObject({ code: "publish-failed", stack: expect.stringContaining("log.test.ts") });
  expect(`${err.message} ${err.stack}`).not.toContain("secret");
});

it("writes one line for each message at each end for debugging, and each step on its way only for tracing", () => {
  const lines: string[] = [];
  const at = (level: string) => (text: string) => lines.push(`${level}: ${text.split(" ")[0]}`);
  const logger = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
  for (const telemetry of [logTo(logger), logTo({ ...logger, trace: at("trace") })]) {
    telemetry({ name: "outbox.appended", box: "outbox", count: 1 });
    telemetry({ name: "relay.read", box: "outbox", count: 1 });
    telemetry({ name: "message.sent", box: "outbox", id: "1", attempt: 1 });
    telemetry({ name: "delivery.received", consumer: "billing", id: "1", attempt: 1 });
    telemetry({ name: "delivery.handled", consumer: "billing", id: "1", durationMs: 1 });
    telemetry({ name: "delivery.acked", consumer: "billing", id: "1" });
  }
  const shown = ["debug: message.sent", "debug: delivery.handled"];
  expect(lines.filter((line) => !line.startsWith("trace"))).toEqual([...shown, ...shown]);
  expect(lines.filter((line) => line.startsWith("trace"))).toHaveLength(4);
});

it("writes once what a handler fails with, though its row in the consumer's box fails too", () => {
  const lines: string[] = [];
  const at = (level: string) => (text: string) => lines.push(`${level}: ${text.split(" ")[0]}`);
  const telemetry = logTo({ debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") });
  const error = new Error("no paper");
  const box = "inbox/billing";
  telemetry({ name: "delivery.retried", consumer: "billing", id: "1", attempt: 1, retryInMs: 5, error });
  telemetry({ name: "message.failed", box, id: "1", attempt: 1, retryInMs: 5, error });
  telemetry({ name: "delivery.parked", consumer: "billing", id: "1", error });
  telemetry({ name: "message.parked", box, id: "1", error });
  // This message was parked without a handler, so no delivery event reports it.
  telemetry({ name: "message.parked", box, id: "2", error: new PostboxError("message-suspect", "it ended processes") });
  expect(lines).toEqual(["warn: delivery.retried", "error: delivery.parked", "error: message.parked"]);
});

it("refuses an unknown option", () => {
  const misspelled = { field: true } as object;
  expect(() => logTo(console, misspelled)).toThrow(expect.objectContaining({ code: "option-unknown", path: "field" }));
});

it("says that a part has ended, and what to do about a parked message", () => {
  const lines: string[] = [];
  const add = (text: string) => void lines.push(text);
  const telemetry = logTo({ debug: add, info: add, warn: add, error: add });
  const error = new PostboxError("attempts-spent", "10 attempts failed, the last with: no paper");
  telemetry({
    name: "relay.failed",
    box: "outbox",
    error: new PostboxError("schema-missing", "no tables"),
    retryInMs: Number.POSITIVE_INFINITY,
  });
  telemetry({
    name: "relay.failed",
    box: "outbox",
    error: new PostboxError("store-unavailable", "no server"),
    retryInMs: 100,
  });
  telemetry({ name: "delivery.parked", consumer: "billing", id: "1", error });
  telemetry({ name: "message.parked", box: "outbox", id: "2", error });
  expect(lines).toEqual([
    'relay.failed box=outbox error="[schema-missing] no tables" retryInMs=Infinity: ' +
      "this part has ended and is not tried again; correct the cause, then start it again",
    'relay.failed box=outbox error="[store-unavailable] no server" retryInMs=100',
    'delivery.parked consumer=billing id=1 error="[attempts-spent] 10 attempts failed, the last with: no paper": ' +
      "correct the cause, then call admin.retry for the consumer's box; " +
      "without an inbox, replay it from the broker's parked messages",
    'message.parked box=outbox id=2 error="[attempts-spent] 10 attempts failed, the last with: no paper": ' +
      "correct the cause, then call admin.retry or admin.discard for this box",
  ]);
});
