import { gate } from "@postbox/testkit";
import { type BaseContext, correlation, defineEvent, type Extensions, type Message } from "postbox";
import { createMessage } from "postbox/store";
import { expect, it } from "vitest";
import { z } from "zod";
import { publisherTo } from "../publisher/publisher.js";

const Invoiced = defineEvent({ type: "shop.Invoiced", schema: z.object({}) });

function world(incoming: Extensions, defaults: Extensions = {}) {
  const published: Extensions[] = [];
  const sink = async (messages: readonly Message[]) => void published.push(...messages.map((m) => m.extensions));
  const publisher = publisherTo("test", { source: "/test", defaults: { extensions: defaults } }).into(sink);
  const message = createMessage({ id: "in", source: "/", type: "shop.Placed", extensions: incoming });
  const handle = (work: Parameters<ReturnType<typeof correlation>["run"]>[1]) =>
    correlation().run({ message } as BaseContext, work);
  return { published, publisher, handle };
}

it.each<[string, { incoming: Extensions; own: Extensions; defaults: Extensions }, Extensions]>([
  [
    "the message's id where it has no correlation",
    { incoming: {}, own: {}, defaults: {} },
    { correlationid: "in", causationid: "in" },
  ],
  [
    "the message's correlation",
    { incoming: { correlationid: "request" }, own: {}, defaults: {} },
    { correlationid: "request", causationid: "in" },
  ],
  [
    "that rather than a default",
    { incoming: { correlationid: "request" }, own: {}, defaults: { correlationid: "default", x: "y" } },
    { correlationid: "request", causationid: "in", x: "y" },
  ],
  [
    "what it sets itself rather than that",
    { incoming: { correlationid: "request" }, own: { correlationid: "own" }, defaults: { correlationid: "default" } },
    { correlationid: "own", causationid: "in" },
  ],
])("what is published, sent or returned while a message is handled carries %s", async (_, given, expected) => {
  const { published, publisher, handle } = world(given.incoming, given.defaults);
  const returned = await handle(async () => {
    await publisher.publish(Invoiced, {}, { extensions: given.own });
    await publisher.send({ type: "shop.Raw", extensions: given.own });
    return [Invoiced.message({}, { extensions: given.own })];
  });
  await publisher.publishAll(returned);
  expect(published).toEqual([expected, expected, expected]);
});

it("so does what the handler does not wait for, but not what only begins after it", async () => {
  const { published, publisher, handle } = world({});
  const over = gate();
  const outliving: Promise<unknown>[] = [];
  await handle(async () => {
    outliving.push(publisher.publish(Invoiced, {}));
    outliving.push(over.opened.then(() => publisher.publish(Invoiced, {})));
    return [];
  });
  over.open();
  await Promise.all(outliving);
  expect(published).toEqual([{ correlationid: "in", causationid: "in" }, {}]);
});
