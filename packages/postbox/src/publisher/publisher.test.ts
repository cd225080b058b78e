import { describe, expect, it } from "vitest";
import { z } from "zod";
import { PermanentError, TransportDownError } from "../errors.js";
import { defineEvent } from "../event/define-event.js";
import type { Codec } from "../message/codec.js";
import type { Message } from "../message/message.js";
import type { TelemetryEvent } from "../telemetry/events.js";
import type { Outcome, Sender } from "../transport.js";
import { createPublisher, type DirectPublisherOptions } from "./create-publisher.js";

const Placed = defineEvent({
  type: "shop.orders.v1.Placed",
  schema: z.object({ orderId: z.string(), note: z.string().default("none") }),
  key: ({ orderId }) => orderId,
  version: "2",
  dataschema: "https://example.test/placed.json",
});

const sent: Outcome = { status: "sent" };

/** A sender that records its messages and settles each with `answer`. */
function recordingSender(answer: (message: Message) => Outcome | undefined = () => sent) {
  const messages: Message[] = [];
  const sender: Sender = {
    name: "recording",
    keepsOrder: true,
    async send(batch, settled) {
      messages.push(...batch);
      batch.forEach((message, index) => {
        const outcome = answer(message);
        if (outcome !== undefined) settled(index, outcome);
      });
    },
  };
  return { sender, messages };
}

function publisherOf(
  options: Partial<DirectPublisherOptions> = {},
  answer?: (message: Message) => Outcome | undefined,
) {
  const { sender, messages } = recordingSender(answer);
  return { publisher: createPublisher(sender, { source: "/shop", ...options }), messages };
}

describe("a publisher", () => {
  it("completes an event: validated data as bytes, key, topic, version, source, id and time", async () => {
    const { publisher, messages } = publisherOf({ runtime: { now: () => 0 } });
    const { id } = await publisher.publish(Placed, { orderId: "1" });
    expect(messages).toHaveLength(1);
    const { data, ...envelope } = messages[0] as Message;
    expect(envelope).toEqual({
      specversion: "1.0",
      id,
      source: "/shop",
      type: "shop.orders.v1.Placed",
      time: "1970-01-01T00:00:00.000Z",
      datacontenttype: "application/json",
      dataschema: "https://example.test/placed.json",
      extensions: { dataversion: "2" },
      headers: {},
      topic: "shop.orders.v1",
      key: "1",
    });
    expect(Buffer.from(data).toString()).toBe('{"orderId":"1","note":"none"}');
  });

  it("lets the call win over defaults, and both over nothing", async () => {
    const { publisher, messages } = publisherOf({
      defaults: { subject: "s", headers: { a: "default", b: "default" }, extensions: { x: "default", y: "default" } },
    });
    const options = { id: "7", key: "k", time: new Date(1), headers: { a: "call" }, extensions: { x: "call" } };
    expect(await publisher.publish(Placed, { orderId: "1" }, options)).toEqual({ id: "7" });
    expect(messages[0]).toMatchObject({
      id: "7",
      key: "k",
      subject: "s",
      time: "1970-01-01T00:00:00.001Z",
      headers: { a: "call", b: "default" },
      extensions: { x: "call", y: "default", dataversion: "2" },
    });
  });

  it("encodes as the call says, else as the event says", async () => {
    const shout: Codec = {
      contentType: "text/shout",
      encode: (data) => Buffer.from(`${data}!`),
      decode: (bytes) => Buffer.from(bytes).toString().slice(0, -1),
    };
    const { publisher, messages } = publisherOf({ codecs: [shout] });
    const Said = defineEvent({ type: "a.Said", schema: z.string(), contentType: "text/shout" });
    await publisher.publish(Said, "x");
    await publisher.publish(Said, "x", { contentType: "application/json" });
    expect(messages.map(({ datacontenttype, data }) => [datacontenttype, Buffer.from(data).toString()])).toEqual([
      ["text/shout", "x!"],
      ["application/json", '"x"'],
    ]);
    expect(messages[1]).not.toHaveProperty("contentType");
  });

  it("publishes many in order, with ids in the same order, and nothing for nothing", async () => {
    const { publisher, messages } = publisherOf();
    const ids = await publisher.publishAll(["a", "b", "c"].map((orderId) => Placed.message({ orderId })));
    expect(messages.map(({ key }) => key)).toEqual(["a", "b", "c"]);
    expect(ids).toEqual(messages.map(({ id }) => ({ id })));
    const untouched = publisherOf({ middleware: [() => Promise.reject(new Error("was called"))] });
    expect(await untouched.publisher.publishAll([])).toEqual([]);
  });

  it("sends untyped bytes untouched", async () => {
    const { publisher, messages } = publisherOf();
    const data = Uint8Array.of(0, 255, 1);
    await publisher.send({ type: "raw.Bytes", datacontenttype: "application/octet-stream", data });
    expect(messages[0]).toMatchObject({ type: "raw.Bytes", topic: "raw", source: "/shop" });
    expect(messages[0]?.data).toBe(data);
  });

  it("takes key and bytes at one moment, whatever becomes of the data meanwhile", async () => {
    const codec: Codec<{ n: number }> = {
      contentType: "text/x-number",
      encode: ({ n }) => Buffer.from(`${n}`),
      decode: (bytes) => ({ n: Number(Buffer.from(bytes).toString()) }),
    };
    const Counted = defineEvent({
      type: "a.Counted",
      schema: z.custom<{ n: number }>(),
      codecs: [codec],
      key: ({ n }) => `${n}`,
    });
    const { publisher, messages } = publisherOf();
    const data = { n: 0 };
    const publishing = [1, 2, 3].map((n) => publisher.publish(Counted, Object.assign(data, { n })));
    await Promise.all(publishing);
    expect(messages.map((message) => [message.key, Buffer.from(message.data).toString()])).toEqual([
      ["1", "1"],
      ["2", "2"],
      ["3", "3"],
    ]);
  });

  it("publishes nothing when one of many is invalid", async () => {
    const { publisher, messages } = publisherOf();
    const drafts = [Placed.message({ orderId: "1" }), Placed.message({ orderId: 2 } as never)];
    await expect(publisher.publishAll(drafts)).rejects.toMatchObject({ code: "data-invalid", path: "data.orderId" });
    expect(messages).toEqual([]);
  });

  it("takes no limit that is beyond what a store takes", () => {
    expect(() => publisherOf({ maxMessageBytes: 128 * 1024 * 1024 })).not.toThrow();
    expect(() => publisherOf({ maxMessageBytes: 128 * 1024 * 1024 + 1 })).toThrow(
      "option 'maxMessageBytes' must be a whole number from 1 to 134,217,728 (128 MiB)",
    );
  });

  it("refuses what is too large", async () => {
    const { publisher } = publisherOf({ maxMessageBytes: 300 });
    const refusal = publisher.publish(Placed, { orderId: "1", note: "x".repeat(300) });
    await expect(refusal).rejects.toMatchObject({ code: "message-too-large" });
  });

  it("runs middleware from the outside in, and checks what it changed", async () => {
    const order: string[] = [];
    const { publisher, messages } = publisherOf({
      middleware: [
        async (batch, next) => {
          order.push("first");
          await next(batch.map((message) => ({ ...message, headers: { ...message.headers, tenant: "t" } })));
          order.push("first again");
        },
        async (batch, next) => {
          order.push(`second sees ${batch[0]?.headers.tenant}`);
          await next(batch);
        },
      ],
    });
    await publisher.publish(Placed, { orderId: "1" });
    expect(order).toEqual(["first", "second sees t", "first again"]);
    expect(messages[0]?.headers).toEqual({ tenant: "t" });

    const renaming = publisherOf({ middleware: [(batch, next) => next(batch.map((m) => ({ ...m, id: "renamed" })))] });
    expect(await renaming.publisher.publish(Placed, { orderId: "1" })).toEqual({ id: "renamed" });
    const dropping = publisherOf({ middleware: [(batch, next) => next(batch.slice(1))] });
    const ids = await dropping.publisher.publishAll(["a", "b"].map((id) => Placed.message({ orderId: id }, { id })));
    expect(ids).toEqual([{ id: "b" }]);

    const careless = publisherOf({ middleware: [(batch, next) => next(batch.map((m) => ({ ...m, id: "a\nb" })))] });
    await expect(careless.publisher.publish(Placed, { orderId: "1" })).rejects.toMatchObject({ path: "id" });
    expect(careless.messages).toEqual([]);
  });

  it("says which messages were not sent, also those nobody reported", async () => {
    const error = new PermanentError("too large");
    const { publisher } = publisherOf({}, ({ key }) => {
      if (key === "b") return { status: "rejected", error };
      return key === "c" ? undefined : sent;
    });
    const drafts = ["a", "b", "c"].map((orderId) => Placed.message({ orderId }, { id: `id-${orderId}` }));
    await expect(publisher.publishAll(drafts)).rejects.toMatchObject({
      code: "publish-failed",
      failures: [
        { index: 1, id: "id-b", error },
        { index: 2, id: "id-c" },
      ],
    });
  });

  it("resolves without what its sender drops, and tells so", async () => {
    const told: TelemetryEvent[] = [];
    const error = new Error("no queue takes it");
    const answer = ({ key }: Message): Outcome => (key === "b" ? { status: "dropped", error } : sent);
    const { publisher } = publisherOf({ telemetry: (event) => told.push(event) }, answer);
    const ids = await publisher.publishAll(["a", "b", "c"].map((orderId) => Placed.message({ orderId })));
    expect(told).toEqual([{ name: "publisher.dropped", sender: "recording", id: ids[1]?.id, error }]);
  });

  it("passes an outage on, and gives up on a broker that does not answer", async () => {
    const down = new TransportDownError("connect", "nobody listens");
    const dead: Sender = { name: "dead", keepsOrder: true, send: () => Promise.reject(down) };
    const publish = (sender: Sender) =>
      createPublisher(sender, { source: "/shop", publishTimeoutMs: 5 }).publish(Placed, { orderId: "1" });
    await expect(publish(dead)).rejects.toBe(down);
    // A sender that ignores even the signal.
    const silent: Sender = { name: "silent", keepsOrder: true, send: () => new Promise(() => {}) };
    await expect(publish(silent)).rejects.toMatchObject({ code: "publish-timeout" });
  });

  it("refuses what is no event, and options of a message that it does not know", async () => {
    const { publisher } = publisherOf();
    const untyped = publisher as unknown as Record<"publish" | "publishAll", (...args: unknown[]) => Promise<unknown>>;
    await expect(untyped.publish("shop.Placed", {})).rejects.toMatchObject({ code: "event-invalid" });
    await expect(untyped.publishAll([{ type: "shop.Placed" }])).rejects.toMatchObject({ code: "event-invalid" });
    await expect(untyped.publish(Placed, { orderId: "1" }, { delay: 5 })).rejects.toMatchObject({
      code: "option-unknown",
      path: "delay",
    });
  });

  it("refuses options it does not know, and a missing source", () => {
    expect(() => publisherOf({ sorce: "/x" } as never)).toThrow("did you mean 'source'?");
    expect(() => createPublisher(recordingSender().sender, {} as never)).toThrow("option 'source' is missing");
    for (const codec of [{}, null, "text/x-line", { contentType: "a/b", decode: () => 1 }]) {
      expect(() => publisherOf({ codecs: [codec] } as never)).toThrow(
        "option 'codecs' must be an array of codecs, each with contentType, encode and decode",
      );
    }
  });
});
