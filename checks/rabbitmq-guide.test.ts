import { logTo, type TelemetryEvent } from "postbox";
import { rabbitmqReceiver, rabbitmqSender } from "postbox/rabbitmq";
import { expect, it } from "vitest";
import { known, named, pageText, tableOf } from "./snippets.js";

const guide = "docs/guides/rabbitmq.md";
const nonsense = { url: "amqp://nowhere", "?": 1 };

it.each([
  ["rabbitmqSender(…)", () => rabbitmqSender(nonsense)],
  ["rabbitmqReceiver(…)", () => rabbitmqReceiver(nonsense)],
])("the guide to RabbitMQ lists all options that %s knows", (head, make) => {
  const rows = [
    ...tableOf(guide, "connection, both sides | meaning | default"),
    ...tableOf(guide, `\`${head}\` | meaning | default`),
  ];
  expect(rows.map(([name]) => named(name)[0]).sort()).toEqual(known(make).sort());
});

it("the guide to RabbitMQ lists all events of a connection, with the level at which they are logged", () => {
  const levels = new Map<string, string | undefined>();
  for (const [cell, , level = ""] of tableOf(guide, "event of a connection | when | `logTo`")) {
    for (const [at, name] of named(cell).entries()) levels.set(name, level.split(", ")[at]);
  }
  const events = pageText("packages/postbox/src/telemetry/events.ts").matchAll(/readonly name: "(transport\.\w+)"/g);
  expect([...levels.keys()].sort()).toEqual([...events].map(([, name]) => name).sort());
  for (const [name, level] of levels) {
    const logged: string[] = [];
    const at = (which: string) => () => void logged.push(which);
    logTo({ debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") })({ name } as TelemetryEvent);
    expect([name, ...logged]).toEqual([name, level]);
  }
});
