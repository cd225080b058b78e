import { recordingSender, telemetryLog } from "@postbox/testkit";
import {
  createMessaging,
  createOutbox,
  createPublisher,
  createRouter,
  durableInbox,
  inbox,
  inboxOf,
  outboxReceiver,
  type Router,
  type StandardSchema,
  transaction,
} from "postbox";
import { memoryBroker, memoryStore } from "postbox/memory";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { defineEvent } from "./define-event.js";
import { upcastFrom } from "./upcast.js";

const V1 = defineEvent({ type: "shop.v1.Placed", schema: z.object({ id: z.string(), total: z.number() }) });
const V2 = defineEvent({
  type: "shop.v2.Placed",
  schema: z.object({ id: z.string(), cents: z.number().int() }),
  upcast: [upcastFrom(V1, ({ id, total }) => ({ id, cents: total * 100 }))],
});
const V3 = defineEvent({
  type: "shop.v3.Placed",
  schema: z.object({ orderId: z.string(), amount: z.object({ cents: z.number(), currency: z.string() }) }),
  upcast: [upcastFrom(V2, ({ id, cents }) => ({ orderId: id, amount: { cents, currency: "EUR" } }))],
});

/**
 * Publishes to a router in this process and waits for the settlements named by `ending`. Returns the reasons of the
 * parked messages.
 */
async function settled(
  register: (router: Router) => unknown,
  publish: (publisher: ReturnType<typeof createPublisher>) => Promise<unknown>,
  ...ending: ["delivery.acked" | "delivery.parked", number?]
) {
  const broker = memoryBroker();
  const log = telemetryLog();
  const router = createRouter("b", { telemetry: log.telemetry });
  register(router);
  // Starting the router binds its queue, so it must precede the first publish.
  router.start(broker.receiver());
  await publish(createPublisher(broker.sender(), { source: "/test" }));
  await log.until(...ending);
  await router.stop();
  return broker.parked("b").map(({ reason }) => reason);
}

describe("a handler of an event with upcasters", () => {
  it("takes its own type and the older ones, each through all steps, and sees the message as it arrived", async () => {
    const got: unknown[] = [];
    const messages: unknown[] = [];
    await settled(
      (router) =>
        router.on(V3, (data, { message }) => {
          got.push(data);
          messages.push([message.type, message.topic, Buffer.from(message.data).toString()]);
        }),
      async (publisher) => {
        await publisher.publish(V1, { id: "1", total: 1.5 });
        await publisher.publish(V2, { id: "2", cents: 250 });
        await publisher.publish(V3, { orderId: "3", amount: { cents: 350, currency: "USD" } });
      },
      "delivery.acked",
      3,
    );
    expect(got).toEqual([
      { orderId: "1", amount: { cents: 150, currency: "EUR" } },
      { orderId: "2", amount: { cents: 250, currency: "EUR" } },
      { orderId: "3", amount: { cents: 350, currency: "USD" } },
    ]);
    expect(messages.slice(0, 2)).toEqual([
      ["shop.v1.Placed", "shop.v1", '{"id":"1","total":1.5}'],
      ["shop.v2.Placed", "shop.v2", '{"id":"2","cents":250}'],
    ]);
  });

  it("takes a type by its name alone, from its topic and by its codecs", async () => {
    const got: unknown[] = [];
    const line = {
      contentType: "text/x-line",
      encode: String as never,
      decode: (bytes: Uint8Array) => `${bytes}`.length,
    };
    const V4 = defineEvent({
      type: "shop.v4.Placed",
      schema: z.object({ from: z.unknown() }),
      upcast: [
        upcastFrom("legacy-placed", (from) => ({ from }), { topic: "legacy" }),
        upcastFrom("shop.lines.Placed", (from) => ({ from }), { codecs: [line] }),
      ],
    });
    await settled(
      (router) => router.on(V4, (data) => void got.push(data)),
      async (publisher) => {
        await publisher.send({ type: "legacy-placed", topic: "legacy", data: Buffer.from('{"any":"thing"}') });
        await publisher.send({ type: "shop.lines.Placed", datacontenttype: "text/x-line", data: Buffer.from("ab") });
      },
      "delivery.acked",
      2,
    );
    expect(got).toEqual([{ from: { any: "thing" } }, { from: "97,98".length }]);
  });

  it("goes by an upcaster of its own before one through another event", async () => {
    const Direct = defineEvent({
      type: "shop.v3.Placed",
      schema: z.object({ how: z.string() }),
      upcast: [upcastFrom(V2, () => ({ how: "through v2" })), upcastFrom(V1, () => ({ how: "from v1" }))],
    });
    expect(Direct.upcasts.map(({ type }) => type)).toEqual(["shop.v2.Placed", "shop.v1.Placed"]);
    expect(await Direct.upcasts[1]?.["~read"]({ id: "1", total: 1 })).toEqual({ how: "from v1" });
  });

  it.each([
    [
      "an upcaster throws",
      () => {
        throw new Error("no total");
      },
      "[upcast-failed] shop.v1.Placed cannot be upcast to shop.v9.Placed: no total; correct the upcaster, then retry " +
        "the message",
    ],
    [
      "the new schema refuses what it returned",
      () => ({ cents: "x" }),
      "[upcast-failed] shop.v1.Placed cannot be upcast to shop.v9.Placed: [data-invalid] shop.v9.Placed: data.cents: ",
    ],
    ["it returns a promise", async () => ({ cents: 1 }), "it returned a promise"],
    // biome-ignore lint/suspicious/noThenProperty: a thenable that is no promise, such as a query builder.
    ["it returns what can be awaited", () => ({ cents: 1, then: () => {} }), "it returned a promise"],
  ])("parks at once where %s", async (_, upcast, text) => {
    const schema = z.looseObject({ cents: z.number().optional() });
    const V9 = defineEvent({ type: "shop.v9.Placed", schema, upcast: [upcastFrom(V1, upcast as () => never)] });
    const [reason] = await settled(
      (router) => router.on(V9, () => {}),
      (publisher) => publisher.publish(V1, { id: "1", total: 1 }),
      "delivery.parked",
    );
    expect(reason).toMatchObject({ name: "PermanentError", code: "upcast-failed" });
    expect(reason?.message).toContain(text);
  });

  it("parks what the old schema refuses, with its own words", async () => {
    const [reason] = await settled(
      (router) => router.on(V3, () => {}),
      (publisher) => publisher.send({ type: V1.type, data: Buffer.from('{"id":1}') }),
      "delivery.parked",
    );
    expect(reason).toMatchObject({ code: "data-invalid", path: "data.id" });
    expect(reason?.message).toContain("shop.v1.Placed: data.id");
  });

  it("tries again where the new schema fails by itself", async () => {
    let calls = 0;
    const schema: StandardSchema<{ id: string }> = {
      "~standard": {
        version: 1,
        vendor: "test",
        validate: () => (calls++ === 0 ? Promise.reject(new Error("lookup down")) : { value: { id: "1" } }),
      },
    };
    const V9 = defineEvent({ type: "shop.v9.Placed", schema, upcast: [upcastFrom(V1, (old) => old)] });
    const broker = memoryBroker();
    const log = telemetryLog();
    const router = createRouter("b", { telemetry: log.telemetry, backoff: () => 1 }).on(V9, () => {});
    router.start(broker.receiver());
    await createPublisher(broker.sender(), { source: "/test" }).publish(V1, { id: "1", total: 1 });
    await log.until("delivery.acked");
    await router.stop();
    expect(calls).toBe(2);
  });

  it("shares no type with another handler", () => {
    const refusal = (text: string) =>
      expect.objectContaining({ code: "handler-exists", message: expect.stringContaining(text) });
    const router = createRouter("b").on(V1, () => {});
    expect(() => router.on(V3 as never, () => {})).toThrow(
      refusal("shop.v1.Placed has a handler already, and shop.v3.Placed upcasts from it; keep one of them"),
    );
    const other = createRouter("b").on(V2, () => {});
    expect(() => other.on(V1 as never, () => {})).toThrow(
      refusal("shop.v2.Placed takes shop.v1.Placed already, by its upcaster; keep one of them"),
    );
    expect(() => other.on(V3 as never, () => {})).toThrow(refusal("shop.v2.Placed has a handler already"));
  });

  it("handles an older message once, however often it comes", async () => {
    const store = memoryStore();
    const broker = memoryBroker();
    const log = telemetryLog();
    const got: unknown[] = [];
    const router = createRouter("b", { telemetry: log.telemetry })
      .use(transaction(store))
      .use(inbox(store))
      .on(V3, ({ orderId }) => void got.push(orderId));
    router.start(broker.receiver());
    const publisher = createPublisher(broker.sender(), { source: "/test" });
    for (const id of ["m1", "m1", "m2"]) await publisher.publish(V1, { id, total: 1 }, { id });
    await log.until("delivery.acked", 3);
    await router.stop();
    expect(got.sort()).toEqual(["m1", "m2"]);
  });

  it("handles older messages from the box of durableInbox", async () => {
    const store = memoryStore();
    const broker = memoryBroker();
    const log = telemetryLog();
    const got: unknown[] = [];
    const router = createRouter("b", { telemetry: log.telemetry })
      .use(transaction(store))
      .use(durableInbox(store, { pollIntervalMs: 10 }))
      .on(V3, ({ orderId }, { message }) => void got.push([orderId, message.type]));
    router.start(broker.receiver());
    const publisher = createPublisher(broker.sender(), { source: "/test" });
    for (const id of ["m1", "m1"]) await publisher.publish(V1, { id, total: 1 }, { id });
    await publisher.publish(V2, { id: "m2", cents: 1 }, { id: "m2" });
    await publisher.send({ type: "shop.v1.Placed", id: "m3", data: Buffer.from('{"id":3}') });
    await log.until("message.sent", 2);
    await log.until("message.parked");
    await router.stop();
    expect(got.sort()).toEqual([
      ["m1", "shop.v1.Placed"],
      ["m2", "shop.v2.Placed"],
    ]);
    expect(store.contents(inboxOf("b")).parked).toMatchObject([{ error: expect.stringContaining("data.id: ") }]);
  });

  it("handles older messages from the outbox itself", async () => {
    const store = memoryStore();
    const log = telemetryLog();
    const got: unknown[] = [];
    const outbox = createOutbox(store, { source: "/test" });
    await store.transaction(async (tx) => {
      await outbox.in(tx).publish(V1, { id: "m1", total: 1 });
      await outbox.in(tx).publish(V2, { id: "m2", cents: 1 });
    });
    const router = createRouter("b", { telemetry: log.telemetry }).on(V3, ({ orderId }, { message }) => {
      got.push([orderId, message.type]);
    });
    router.start(outboxReceiver(store, { pollIntervalMs: 10 }));
    await log.until("delivery.acked", 2);
    await router.stop();
    expect(got.sort()).toEqual([
      ["m1", "shop.v1.Placed"],
      ["m2", "shop.v2.Placed"],
    ]);
  });

  it.each([true, false, "durable"] as const)("handles older messages in createMessaging, inbox: %s", async (inbox) => {
    const store = memoryStore();
    const broker = memoryBroker();
    const log = telemetryLog();
    const got: unknown[] = [];
    const messaging = createMessaging({
      service: "orders",
      store,
      sender: broker.sender(),
      receiver: broker.receiver(),
      outbox: true,
      telemetry: log.telemetry,
      relayOptions: { pollIntervalMs: 10 },
      inboxOptions: { pollIntervalMs: 10 },
    });
    messaging
      .consumer("orders", { inbox })
      .on(V3, ({ orderId }, { message }) => void got.push([orderId, message.type]));
    messaging.start();
    await store.transaction(() => messaging.publisher.publish(V1, { id: "m1", total: 1 }));
    await log.until("delivery.handled");
    await messaging.stop();
    expect(got).toEqual([["m1", "shop.v1.Placed"]]);
  });

  it("publishes as its own type alone", async () => {
    const sender = recordingSender();
    const order = { orderId: "1", amount: { cents: 1, currency: "EUR" } };
    await createPublisher(sender, { source: "/test" }).publish(V3, order);
    expect(sender.messages.map(({ type, topic }) => [type, topic])).toEqual([["shop.v3.Placed", "shop.v3"]]);
  });
});

describe("upcastFrom", () => {
  const schema = z.object({});
  const up = () => ({});
  const define = (upcast: readonly ReturnType<typeof upcastFrom>[]) =>
    defineEvent({ type: "shop.v3.Placed", schema, upcast: upcast as never });

  it.each([
    ["itself", [upcastFrom("shop.v3.Placed", up)], "shop.v3.Placed upcasts from itself"],
    ["one type twice", [upcastFrom(V1, up), upcastFrom("shop.v1.Placed", up)], "two upcasters from shop.v1.Placed"],
    [
      "an event that upcasts from it",
      [upcastFrom(defineEvent({ type: "a.B", schema, upcast: [upcastFrom("shop.v3.Placed", up)] }), up)],
      "shop.v3.Placed upcasts from a.B, which upcasts from it",
    ],
    [
      "one type in two ways",
      [V2, defineEvent({ type: "shop.v2.Other", schema, upcast: [upcastFrom(V1, up)] })].map((each) =>
        upcastFrom(each, up),
      ),
      "two ways from shop.v1.Placed; add an upcaster from it",
    ],
  ])("is refused for %s", (_, upcast, text) => {
    expect(() => define(upcast)).toThrow(expect.objectContaining({ code: "event-invalid" }));
    expect(() => define(upcast)).toThrow(text);
  });

  it("takes an event or a type, and a function", () => {
    expect(() => upcastFrom({} as never, up)).toThrow("takes an older event, or its type, and a function");
    expect(() => upcastFrom("", up)).toThrow("takes an older event");
    expect(() => upcastFrom(V1, "x" as never)).toThrow("takes an older event");
    expect(() => define({ "shop.v1.Placed": up } as never)).toThrow(
      "option 'upcast' must be an array of what upcastFrom returns",
    );
    expect(() => define([{} as never])).toThrow("'upcast' of shop.v3.Placed takes what upcastFrom returns");
    expect(() => upcastFrom("a.B", up, { topics: "a" } as never)).toThrow("did you mean 'topic'?");
  });
});
