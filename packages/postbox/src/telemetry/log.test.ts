import { PostboxError } from "postbox";
import { expect, it } from "vitest";
import { logTo } from "./log.js";

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
