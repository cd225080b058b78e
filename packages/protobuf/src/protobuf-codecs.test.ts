import { create, fromBinary, type MessageInitShape, toBinary, toJson } from "@bufbuild/protobuf";
import { anyPack, TimestampSchema, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { recordingSender, telemetryLog } from "@postbox/testkit";
import {
  type Codec,
  createPublisher,
  createRouter,
  defineEvent,
  type MessageOptions,
  type Publisher,
  type Router,
} from "postbox";
import { memoryBroker } from "postbox/memory";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { Unit } from "../fixtures/gen/fixtures/editions/v1/editions_pb.js";
import { MeterRead } from "../fixtures/gen/fixtures/editions/v1/editions_postbox.js";
import { AccountOpened } from "../fixtures/gen/fixtures/proto2/v1/proto2_postbox.js";
import { type OrderPlacedEvent, OrderPlacedEventSchema } from "../fixtures/gen/fixtures/shop/v1/orders_pb.js";
import { createOrdersPublisher, OrderPlaced, onOrderPlaced } from "../fixtures/gen/fixtures/shop/v1/orders_postbox.js";
import { Colour, PartSchema, type WideEvent, WideEventSchema } from "../fixtures/gen/fixtures/wide/v1/wide_pb.js";
import { Wide } from "../fixtures/gen/fixtures/wide/v1/wide_postbox.js";
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

/** Publishes to a router in this process. Returns what its handler received and the message that carried it. */
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

describe("the data of an event", () => {
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

  it("is passed on with all that a newer writer has sent, also where something is changed", async () => {
    const Older = defineProtobufEvent({ type: "a.Part", message: PartSchema });
    const newer = create(WideEventSchema, { aString: "x", aBool: true });
    const older = fromBinary(PartSchema, toBinary(WideEventSchema, newer));
    const sender = recordingSender();
    const publisher = createPublisher(sender, { source: "/test" });
    await publisher.publish(Older, older);
    await publisher.publish(Older, { ...older, weight: 2n });
    const [same, changed] = sender.messages.map(({ data }) => data) as [Uint8Array, Uint8Array];
    expect(fromBinary(WideEventSchema, same)).toEqual(newer);
    expect(fromBinary(PartSchema, changed)).toEqual({ ...older, weight: 2n });
  });

  it("loses an enum's value in JSON that only the writer knows, and keeps it in binary", () => {
    const [binary, json] = ["application/protobuf", "application/json"].map((type) =>
      Wide.codecs.find(({ contentType }) => contentType === type),
    );
    const colours = {
      colour: "COLOUR_NEW",
      colours: ["COLOUR_RED", "COLOUR_NEW"],
      coloursByNumber: { 1: "COLOUR_NEW" },
    };
    expect(json?.decode(Buffer.from(JSON.stringify(colours)))).toEqual(
      create(WideEventSchema, { colours: [Colour.RED] }),
    );
    const known = create(WideEventSchema, { colour: 9 as Colour, colours: [Colour.RED, 9 as Colour] });
    expect(binary?.decode(toBinary(WideEventSchema, known))).toEqual(known);
  });

  it("has the required fields of proto2", async () => {
    const publisher = createPublisher(recordingSender(), { source: "/test" });
    const refusal = publisher.publish(AccountOpened, { owner: "o" });
    await expect(refusal).rejects.toMatchObject({ code: "data-invalid", path: "data" });
    await expect(refusal).rejects.toThrow(
      /AccountOpenedEvent: cannot encode .*number.* required field not set; give it what the \.proto/,
    );
    await publisher.publish(AccountOpened, { owner: "o", number: 1 });
    expect((await AccountOpened.validate({})).currency).toBe("EUR");
  });

  it("has the types of editions: 64 bits as text where it says so, and enums without other values", async () => {
    const given = { meter: 1n, serial: "9007199254740993", unit: Unit.LITRE };
    const read = await MeterRead.validate(given);
    expect(read).toMatchObject(given);
    for (const codec of MeterRead.codecs) expect(codec.decode(codec.encode(read))).toEqual(read);
    await expect(MeterRead.validate({ unit: 3 })).rejects.toThrow("data.unit: must be one of UNIT_KWH, UNIT_LITRE");
    for (const serial of ["x", "", "+1", "0x1", "01", "9223372036854775808"]) {
      await expect(MeterRead.validate({ serial })).rejects.toThrow(
        "data.serial: must be a bigint from -9223372036854775808",
      );
    }
  });

  it("is refused with what only JSON cannot carry, as JSON", async () => {
    const publisher = createPublisher(recordingSender(), { source: "/test" });
    const at = { seconds: 1_000_000_000_000n };
    await publisher.publish(Wide, { at });
    const asJson = publisher.publish(Wide, { at }, { contentType: "application/json" });
    await expect(asJson).rejects.toMatchObject({ code: "data-invalid", path: "data" });
    await expect(asJson).rejects.toThrow("; give it what JSON can say, or publish it in binary");
    const anything = anyPack(OrderPlacedEventSchema, create(OrderPlacedEventSchema, { orderId: "1" }));
    await publisher.publish(Wide, { anything });
    const notImported = publisher.publish(Wide, { anything }, { contentType: "application/json" });
    await expect(notImported).rejects.toMatchObject({ code: "data-invalid", path: "data" });
    await expect(notImported).rejects.toThrow(
      "; import the file of fixtures.shop.v1.OrderPlacedEvent in fixtures/wide/v1/wide.proto, or publish it in binary",
    );
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
    expect(broker.parked("b")[0]?.reason).toMatchObject({ code: "data-invalid" });
  });
});

describe("an event that was JSON before", () => {
  const schema = z.object({ orderId: z.string(), totalCents: z.string() });
  const Before = defineEvent({ type: OrderPlaced.type, schema, key: ({ orderId }) => orderId });

  /** What the handler of one event receives if the other is published. */
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
