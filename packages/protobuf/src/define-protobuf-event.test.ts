import { create, type MessageInitShape, toBinary, toJson } from "@bufbuild/protobuf";
import { anyPack, TimestampSchema, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { recordingSender, telemetryLog } from "@postbox/testkit";
import {
  type Codec,
  createOutbox,
  createPublisher,
  createRelay,
  createRouter,
  defineCatalog,
  defineEvent,
  type MessageOptions,
  type Publisher,
  publishOutputs,
  type Router,
  upcastFrom,
} from "postbox";
import { memoryBroker, memoryStore } from "postbox/memory";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { Unit } from "../fixtures/gen/fixtures/editions/v1/editions_pb.js";
import { MeterRead } from "../fixtures/gen/fixtures/editions/v1/editions_postbox.js";
import { class$, delete$ } from "../fixtures/gen/fixtures/names/v1/delete_postbox.js";
import { AccountOpened } from "../fixtures/gen/fixtures/proto2/v1/proto2_postbox.js";
import {
  file_fixtures_shop_v1_orders,
  type OrderPlacedEvent,
  OrderPlacedEventSchema,
} from "../fixtures/gen/fixtures/shop/v1/orders_pb.js";
import {
  createOrdersPublisher,
  OrderEventLost,
  OrderPlaced,
  OrderTaken,
  onOrderPlaced,
  orders,
} from "../fixtures/gen/fixtures/shop/v1/orders_postbox.js";
import { Colour, PartSchema, type WideEvent, WideEventSchema } from "../fixtures/gen/fixtures/wide/v1/wide_pb.js";
import { Wide } from "../fixtures/gen/fixtures/wide/v1/wide_postbox.js";
import { Ping } from "../fixtures/gen/no-package_postbox.js";
import { defineProtobufEvent } from "./define-protobuf-event.js";
import { protobufCodecs } from "./protobuf-codecs.js";

const full: MessageInitShape<typeof WideEventSchema> = {
  anInt64: 9_007_199_254_740_993n,
  aUint64: 18_446_744_073_709_551_615n,
  aSint64: -9_223_372_036_854_775_808n,
  aDouble: Number.NaN,
  aFloat: Number.NEGATIVE_INFINITY,
  someBytes: Uint8Array.of(0, 255, 128),
  colour: Colour.BELOW_ZERO,
  maybeInt32: 0,
  int64s: [1n, -1n],
  labels: { a: "b", __proto__x: "c" },
  partsByNumber: { "-9007199254740993": { name: "p", weight: 1n } },
  blobsByFlag: { true: Uint8Array.of(1) },
  choice: { case: "chosenInt64", value: 0n },
  part: { name: "outer", parts: [{ name: "inner" }] },
  at: { seconds: 1_700_000_000n, nanos: 123_456_789 },
  took: { seconds: -1n, nanos: -5 },
  details: { a: [1, null, { b: "c" }] },
  wrapped: "",
  anything: anyPack(PartSchema, create(PartSchema, { name: "any" })),
};

/** Publishes to a router in this process: what its handler got, and the message that carried it. */
async function travelled(data: MessageInitShape<typeof WideEventSchema>, options?: MessageOptions) {
  const broker = memoryBroker();
  const log = telemetryLog();
  const got: WideEvent[] = [];
  const messages: { datacontenttype: string; data: Uint8Array }[] = [];
  const router = createRouter("b", { telemetry: log.telemetry }).on(Wide, (wide, { message }) => {
    got.push(wide);
    messages.push(message);
  });
  broker.bind("b", [Wide]);
  await createPublisher(broker.sender(), { source: "/test" }).publish(Wide, data, options);
  router.start(broker.receiver());
  await log.until("delivery.acked");
  await router.stop();
  return { got: got[0] as WideEvent, message: messages[0] };
}

describe("an event over a message", () => {
  it.each([
    ["application/protobuf", undefined],
    ["application/proto", { contentType: "application/proto" }],
    ["application/x-protobuf", { contentType: "application/x-protobuf" }],
    ["application/vnd.google.protobuf", { contentType: "application/vnd.google.protobuf" }],
    ["application/json", { contentType: "application/json" }],
    ["application/vnd.wide+json; charset=utf-8", { contentType: "application/vnd.wide+json; charset=utf-8" }],
  ])("arrives as it was published, as %s", async (contentType, options) => {
    const { got, message } = await travelled(full, options);
    expect(got).toEqual(create(WideEventSchema, full));
    expect(got.choice).toEqual({ case: "chosenInt64", value: 0n });
    expect(message?.datacontenttype).toBe(contentType);
    const text = Buffer.from(message?.data ?? []).toString();
    if (contentType.includes("json"))
      expect(JSON.parse(text)).toMatchObject({ anInt64: "9007199254740993", maybeInt32: 0 });
    else expect(message?.data).toEqual(toBinary(WideEventSchema, create(WideEventSchema, full)));
  });

  it("may have anything that its file imports inside of Any, also as JSON", async () => {
    const data = { anything: anyPack(TimestampSchema, timestampFromMs(1_500)) };
    expect((await travelled(data, { contentType: "application/json" })).got).toEqual(create(WideEventSchema, data));
  });

  it("is refused as deep as no reader goes", async () => {
    const publisher = createPublisher(recordingSender(), { source: "/test" });
    const deep = (depth: number): MessageInitShape<typeof PartSchema> =>
      depth === 0 ? {} : { parts: [deep(depth - 1)] };
    await publisher.publish(Wide, { part: deep(98) });
    await publisher.publish(Wide, { part: deep(98) }, { contentType: "application/json" });
    const circle: { parts: unknown[] } = { parts: [{}] };
    circle.parts.push(circle, circle);
    const message = create(PartSchema);
    message.parts.push(message, message);
    for (const part of [deep(99), create(PartSchema, deep(99)), circle, message]) {
      const refusal = publisher.publish(Wide, { part } as never);
      await expect(refusal).rejects.toMatchObject({ code: "data-invalid" });
      await expect(refusal).rejects.toMatchObject({ path: expect.stringMatching(/^data\.part\.parts\[/) });
      await expect(refusal).rejects.toThrow("is more than 100 messages deep, or inside of itself");
    }
  });

  it("is not made of bytes that another codec left as they are: they are parked", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    broker.bind("b", [Wide]);
    const data = toBinary(WideEventSchema, create(WideEventSchema, { aString: "x" }));
    const message = { type: Wide.type, datacontenttype: "application/octet-stream", data };
    await createPublisher(broker.sender(), { source: "/test" }).send(message);
    const router = createRouter("b", { telemetry: log.telemetry }).on(Wide, () => {});
    router.start(broker.receiver());
    await log.until("delivery.parked");
    await router.stop();
    expect(broker.parked("b")[0]?.reason).toMatchObject({ code: "data-invalid" });
  });

  it("has the required fields of proto2", async () => {
    const publisher = createPublisher(recordingSender(), { source: "/test" });
    const refusal = publisher.publish(AccountOpened, { owner: "o" });
    await expect(refusal).rejects.toMatchObject({ code: "data-not-encodable", path: "data" });
    await publisher.publish(AccountOpened, { owner: "o", number: 1 });
    expect((await AccountOpened.validate({})).currency).toBe("EUR");
  });

  it("has the types of editions: 64 bits as text where it says so, and enums without other values", async () => {
    const given = { meter: 1n, serial: "9007199254740993", unit: Unit.LITRE };
    const read = await MeterRead.validate(given);
    expect(read).toMatchObject(given);
    for (const codec of MeterRead.codecs) expect(codec.decode(codec.encode(read))).toEqual(read);
    await expect(MeterRead.validate({ unit: 3 })).rejects.toThrow("data.unit: must be one of UNIT_KWH, UNIT_LITRE");
    await expect(MeterRead.validate({ serial: "x" })).rejects.toMatchObject({ code: "data-invalid" });
  });

  it("is a message already where one is given", async () => {
    const given = create(WideEventSchema, full);
    expect((await travelled(given)).got).toEqual(given);
    expect(await Wide.validate(given)).toBe(given);
  });

  it("arrives although nothing is set, and travels as no bytes", async () => {
    const { got, message } = await travelled({});
    expect(got).toEqual(create(WideEventSchema));
    expect(message?.data).toHaveLength(0);
    expect((await travelled({}, { contentType: "application/json" })).got).toEqual(create(WideEventSchema));
  });

  it("has bytes of the handler's own", () => {
    const bytes = Buffer.from(toBinary(WideEventSchema, create(WideEventSchema, full)));
    const before = Buffer.from(bytes);
    const [binary] = protobufCodecs(WideEventSchema);
    const { someBytes } = (binary as Codec<WideEvent>).decode(bytes);
    expect(Object.getPrototypeOf(someBytes)).toBe(Uint8Array.prototype);
    someBytes.fill(7);
    expect(bytes).toEqual(before);
  });

  it("reads what a newer writer has sent: keeps unknown fields in binary, ignores them in JSON", () => {
    const newer = create(WideEventSchema, { aString: "x", part: { name: "p" } });
    const codecs = protobufCodecs(PartSchema);
    const [binary, json] = ["application/protobuf", "application/json"].map((type) =>
      codecs.find(({ contentType }) => contentType === type),
    );
    const bytes = toBinary(WideEventSchema, newer);
    const older = binary?.decode(bytes);
    expect(older?.$unknown).toHaveLength(2);
    expect(Buffer.from(binary?.encode(older as never) ?? [])).toEqual(Buffer.from(bytes));
    expect(json?.decode(Buffer.from(JSON.stringify(toJson(WideEventSchema, newer))))).toEqual(create(PartSchema));
  });

  it.each<[string, unknown, string, string]>([
    ["text for a number", { anInt32: "1" }, "data.anInt32", "must be a whole number from -2147483648 to 2147483647"],
    ["a fraction", { parts: [{}, { parts: [{ weight: 1.5 }] }] }, "data.parts[1].parts[0].weight", "must be a bigint"],
    ["what is too large", { aUint32: 2 ** 32 }, "data.aUint32", "must be a whole number from 0 to 4294967295"],
    ["what is beyond 64 bits", { anInt64: 2n ** 63n }, "data.anInt64", "must be a bigint from -9223372036854775808"],
    ["what is too small", { aUint64: -1n }, "data.aUint64", "must be a bigint from 0 to 18446744073709551615"],
    ["a number for an int64", { int64s: [1n, 2] }, "data.int64s[1]", "must be a bigint"],
    ["text for a flag", { aBool: "false" }, "data.aBool", "must be true or false"],
    ["a number for text", { labels: { a: 1 } }, "data.labels.a", "must be a string"],
    ["half a character", { aString: "\ud800" }, "data.aString", "has half of a surrogate pair"],
    ["text for bytes", { choice: { case: "chosenBytes", value: "x" } }, "data.chosenBytes", "must be a Uint8Array"],
    ["text for a fraction", { aDouble: "1" }, "data.aDouble", "must be a number"],
    ["a float that is none", { aFloat: 1e39 }, "data.aFloat", "is beyond what a float holds"],
    ["an enum by name", { colour: "COLOUR_RED" }, "data.colour", "must be a whole number"],
    ["a key that is none", { coloursByNumber: { x: 1 } }, "data.coloursByNumber.x", "its key must be a whole number"],
    ["no list", { strings: 5 }, "data.strings", "must be an array"],
    ["no map", { labels: "a" }, "data.labels", "must be an object"],
    ["no message", { part: 5 }, "data.part", "must be an object with the fields of fixtures.wide.v1.Part"],
    [
      "bytes",
      Uint8Array.of(8, 1),
      "data",
      "must be an object with the fields of fixtures.wide.v1.WideEvent, or such a",
    ],
    ["a Buffer", Buffer.from("x"), "data", "must be an object"],
    ["a Map", new Map([["aString", "x"]]), "data", "must be an object"],
    ["a Date", new Date(), "data", "must be an object"],
    ["a list", [{}], "data", "must be an object"],
    [
      "a Date for a message",
      { at: new Date() },
      "data.at",
      "must be an object with the fields of google.protobuf.Time",
    ],
    ["a Map for a map", { labels: new Map([["a", "b"]]) }, "data.labels", "must be an object"],
    ["a misspelt field", { aStrin: "x" }, "data.aStrin", "is no field of fixtures.wide.v1.WideEvent"],
    ["one deep inside", { parts: [{ parts: [{ nam: "x" }] }] }, "data.parts[0].parts[0].nam", "is no field of"],
    ["one in a map", { partsByNumber: { 1: { nam: "x" } } }, "data.partsByNumber.1.nam", "is no field of"],
    ["an unknown case", { choice: { case: "no", value: 1 } }, "data.choice.case", "must be one of chosenString, "],
    ["no case at all", { choice: "chosenString" }, "data.choice", "must be an object of case and value"],
    [
      "a case as a field",
      { chosenString: "x" },
      "data.chosenString",
      "is a case of the oneof 'choice': write choice: {",
    ],
    ["text for messages", { parts: "x" }, "data.parts", "must be an array"],
    [
      "another message inside",
      { part: create(WideEventSchema) },
      "data.part",
      "is a fixtures.wide.v1.WideEvent, not a",
    ],
    [
      "another message inside of a message",
      { ...create(WideEventSchema), part: create(WideEventSchema) },
      "data.part",
      "is no fixtures.wide.v1.Part",
    ],
    ["no object", "x", "data", "must be an object with the fields of fixtures.wide.v1.WideEvent"],
    ["nothing", undefined, "data", "must be an object"],
    ["another message", create(PartSchema), "data", "is a fixtures.wide.v1.Part, not a fixtures.wide.v1.WideEvent"],
  ])("is refused with %s", async (_, data, path, why) => {
    const publisher = createPublisher(recordingSender(), { source: "/test" });
    const refusal = publisher.publish(Wide, data as never);
    await expect(refusal).rejects.toMatchObject({ code: "data-invalid" });
    await expect(refusal).rejects.toThrow(`${path}: ${why}`);
  });

  it("is refused with what only JSON cannot carry, as JSON", async () => {
    const publisher = createPublisher(recordingSender(), { source: "/test" });
    const at = { seconds: 1_000_000_000_000n };
    await publisher.publish(Wide, { at });
    const asJson = publisher.publish(Wide, { at }, { contentType: "application/json" });
    await expect(asJson).rejects.toMatchObject({ code: "data-not-encodable", path: "data" });
  });

  it.each([
    ["application/protobuf", Uint8Array.of(255)],
    ["application/json", Buffer.from('{"anInt32":"x"}')],
    ["application/json", Buffer.from('{"aString":"\xff"}', "latin1")],
    ["application/json", new Uint8Array(0)],
  ])("that cannot be read, as %s, is parked at once", async (datacontenttype, data) => {
    const broker = memoryBroker();
    const log = telemetryLog();
    broker.bind("b", [Wide]);
    const message = { type: Wide.type, datacontenttype, data };
    await createPublisher(broker.sender(), { source: "/test" }).send(message);
    const router = createRouter("b", { telemetry: log.telemetry }).on(Wide, () => {});
    router.start(broker.receiver());
    await log.until("delivery.parked");
    await router.stop();
    expect(broker.parked("b")[0]?.reason).toMatchObject({ code: "data-not-decodable" });
  });

  it("takes its key from a field: none where it is not set, and refused where it is empty", async () => {
    const sender = recordingSender();
    const publisher = createPublisher(sender, { source: "/test" });
    await publisher.publish(OrderPlaced, { orderId: "o1" });
    await publisher.publish(OrderTaken, { orderNumber: 18_446_744_073_709_551_615n });
    await publisher.publish(OrderTaken, {});
    await publisher.publish(OrderEventLost, { orderId: "o2" });
    await publisher.publish(OrderEventLost, {});
    await publisher.publish(MeterRead, { meter: 0n });
    await publisher.publish(MeterRead, {});
    await publisher.publish(class$, { constructor$: "c" });
    await publisher.publish(OrderPlaced, {}, { key: "given" });
    const keys = ["o1", "18446744073709551615", "0", "o2", undefined, "0", undefined, "c", "given"];
    expect(sender.messages.map(({ key }) => key)).toEqual(keys);
    await expect(publisher.publish(OrderPlaced, {})).rejects.toMatchObject({ code: "message-invalid", path: "key" });
    for (const key of ["no", "part", "strings", "chosenString", "$typeName"]) {
      expect(() => defineProtobufEvent({ type: "a.B", message: WideEventSchema, key: key as never })).toThrow(
        `[event-invalid] a.B: fixtures.wide.v1.WideEvent has no field '${key}' that can be its key; name a single string or`,
      );
    }
  });

  it("is defined as its options say", () => {
    const names = [OrderPlaced, OrderEventLost, Ping].map(({ type, topic }) => [type, topic]);
    expect(names).toEqual([
      ["fixtures.shop.v1.OrderPlaced", "fixtures.shop.v1"],
      ["com.example.orders.lost", "com.example.lost"],
      ["Ping", "Ping"],
    ]);
    expect(orders).toEqual({
      name: "fixtures.shop.v1",
      file: file_fixtures_shop_v1_orders,
      events: [OrderPlaced, OrderTaken, OrderEventLost],
    });
    expect(delete$.file.proto.name).toBe("fixtures/names/v1/delete.proto");
  });
});

describe("an event that was JSON before", () => {
  const schema = z.object({ orderId: z.string(), totalCents: z.string() });
  const Before = defineEvent({ type: OrderPlaced.type, schema, key: ({ orderId }) => orderId });

  /** What the handler of one gets of what is published as the other. */
  async function handled(publish: (to: Publisher) => Promise<unknown>, register: (router: Router) => unknown) {
    const broker = memoryBroker();
    const log = telemetryLog();
    const router = createRouter("b", { telemetry: log.telemetry });
    register(router);
    broker.bind("b", [Before]);
    await publish(createPublisher(broker.sender(), { source: "/test" }));
    router.start(broker.receiver());
    await log.until("delivery.acked");
    await router.stop();
  }

  it("is read as a message", async () => {
    const got: OrderPlacedEvent[] = [];
    await handled(
      (to) => to.publish(Before, { orderId: "o1", totalCents: "5" }),
      (router) => onOrderPlaced(router, (order) => void got.push(order)),
    );
    expect(got).toEqual([create(OrderPlacedEventSchema, { orderId: "o1", totalCents: 5n })]);
  });

  it("is still read by those who have no message, also what is zero", async () => {
    const got: unknown[] = [];
    await handled(
      (to) => createOrdersPublisher(to).orderPlaced({ orderId: "o1" }, { contentType: "application/json" }),
      (router) => router.on(Before, (order) => void got.push(order)),
    );
    expect(got).toEqual([{ orderId: "o1", totalCents: "0" }]);
  });
});

describe("an event with upcasters", () => {
  it("takes older messages, and older JSON", async () => {
    const Before = defineEvent({ type: "shop.v0.OrderPlaced", schema: z.object({ id: z.string() }) });
    const Latest = defineProtobufEvent({
      type: "fixtures.shop.v2.OrderPlaced",
      message: OrderPlacedEventSchema,
      key: "orderId",
      version: "2",
      dataschema: "https://example.test/order",
      upcast: [
        upcastFrom(OrderTaken, ({ orderNumber }) => ({ orderId: `${orderNumber}`, totalCents: 1n })),
        upcastFrom(Before, ({ id }) => ({ orderId: id })),
      ],
    });
    expect(Latest).toMatchObject({ version: "2", dataschema: "https://example.test/order" });
    const broker = memoryBroker();
    const log = telemetryLog();
    const got: OrderPlacedEvent[] = [];
    const router = createRouter("b", { telemetry: log.telemetry }).on(Latest, (order) => void got.push(order));
    router.start(broker.receiver());
    const publisher = createPublisher(broker.sender(), { source: "/test" });
    await publisher.publish(OrderTaken, { orderNumber: 7n });
    await publisher.publish(OrderTaken, { orderNumber: 8n }, { contentType: "application/json" });
    await publisher.publish(Before, { id: "9" });
    await publisher.publish(Latest, { orderId: "10" });
    await log.until("delivery.acked", 4);
    await router.stop();
    expect(got).toEqual(
      [["7", 1n] as const, ["8", 1n] as const, ["9", 0n] as const, ["10", 0n] as const].map(([orderId, totalCents]) =>
        create(OrderPlacedEventSchema, { orderId, totalCents }),
      ),
    );
    defineProtobufEvent({
      type: "a.B",
      message: OrderPlacedEventSchema,
      // @ts-expect-error: an int64 is a bigint
      upcast: [upcastFrom(Before, () => ({ totalCents: 5 }))],
    });
    // Lists, maps, bytes and messages inside of messages, as a constant.
    const parts = {
      parts: [{ parts: [{ name: "p", weight: 1n }] }],
      choice: { case: "chosenInt64", value: 0n },
    } as const;
    const upcast = () => ({
      ...parts,
      strings: ["a"],
      someBytes: Uint8Array.of(1),
      labels: { a: "b" },
      details: { a: [1] },
    });
    defineProtobufEvent({ type: "a.B", message: WideEventSchema, upcast: [upcastFrom(Before, upcast)] });
    const other = createRouter("other").on(Latest, () => {});
    // @ts-expect-error: taken already
    expect(() => other.on(OrderTaken, () => {})).toThrow(
      `[handler-exists] ${Latest.type} takes ${OrderTaken.type} already, by its upcaster`,
    );
  });
});

describe("the code for a file", () => {
  it("publishes in a transaction, and handles with all that the router gives", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    const store = memoryStore();
    const outbox = createOutbox(store, { source: "/shop" });
    const lost: (string | undefined)[] = [];
    const router = createRouter("billing", { telemetry: log.telemetry }).use(
      publishOutputs(createPublisher(broker.sender(), { source: "/billing" })),
    );
    onOrderPlaced(router, ({ orderId, totalCents }, { attempt }) => {
      expect([totalCents, attempt]).toEqual([5n, 1]);
      return [OrderEventLost.message({ orderId })];
    });
    router.on(OrderEventLost, ({ orderId }) => void lost.push(orderId));
    broker.bind("billing", orders.events);
    const relay = createRelay(store, broker.sender(), { pollIntervalMs: 10 });
    await store
      .transaction(async (tx) => {
        await createOrdersPublisher(outbox.in(tx)).orderPlaced({ orderId: "rolled back", totalCents: 4n });
        throw new Error("no");
      })
      .catch(() => {});
    await store.transaction(async (tx) => {
      await createOrdersPublisher(outbox.in(tx)).orderPlaced({ orderId: "o1", totalCents: 5n }, { subject: "s" });
    });
    router.start(broker.receiver());
    relay.start();
    await log.until("delivery.acked", 2);
    await Promise.all([relay.stop(), router.stop()]);
    expect(lost).toEqual(["o1"]);
  });

  it("is listed in a catalog, which publishes by type and says which message it is", async () => {
    const catalog = defineCatalog([orders, Wide]);
    expect(catalog.events).toEqual([OrderEventLost, OrderPlaced, OrderTaken, Wide]);
    const sender = recordingSender();
    const publisher = catalog.publisher(createPublisher(sender, { source: "/test" }));
    await publisher.publish("fixtures.shop.v1.OrderPlaced", { orderId: "1", totalCents: 5n });
    expect(sender.messages).toMatchObject([{ type: OrderPlaced.type, key: "1" }]);
    // @ts-expect-error: an int64 is a bigint
    await expect(publisher.publish("fixtures.shop.v1.OrderPlaced", { totalCents: 5 })).rejects.toThrow("bigint");
    const document = catalog.asyncApi({ info: { title: "Shop", version: "1" } });
    const { payload, ...message } = document.components.messages[OrderPlaced.type] ?? {};
    expect(payload).toBeUndefined();
    expect(message).toMatchObject({
      name: "fixtures.shop.v1.OrderPlaced",
      contentType: "application/protobuf",
      "x-protobuf-message": "fixtures.shop.v1.OrderPlacedEvent",
    });
    expect(catalog.jsonSchema()).toMatchObject({
      $comment: expect.stringContaining("fixtures.shop.v1.OrderPlaced (application/protobuf)"),
      $defs: {},
    });
  });

  it("types what is published and what is handled", () => {
    type Given = Parameters<ReturnType<typeof createOrdersPublisher>["orderPlaced"]>[0];
    const given: Given = { orderId: "1" };
    // @ts-expect-error: an int64 is a bigint
    const wrong: Given = { totalCents: 5 };
    const router = createRouter("b");
    onOrderPlaced(router, (order) => {
      order.totalCents satisfies bigint;
      order.$typeName satisfies "fixtures.shop.v1.OrderPlacedEvent";
      // @ts-expect-error: no such field
      order.order_id;
    });
    const other = createRouter("other").on(OrderPlaced, () => {});
    // @ts-expect-error: handled already
    expect(() => onOrderPlaced(other, () => {})).toThrow("has a handler already");
    // @ts-expect-error: not a string or an integer
    defineProtobufEvent({ type: "a.B", message: WideEventSchema, key: "someBytes" });
    // @ts-expect-error: no field
    expect(() => defineProtobufEvent({ type: "a.B", message: WideEventSchema, key: "$typeName" })).toThrow();
    expect([given, wrong]).toBeDefined();
  });
});
