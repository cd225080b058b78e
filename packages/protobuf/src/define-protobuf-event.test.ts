import { create } from "@bufbuild/protobuf";
import { recordingSender, telemetryLog } from "@postbox/testkit";
import { createPublisher, createRouter, type DataIn, defineEvent, upcastFrom } from "postbox";
import { memoryBroker } from "postbox/memory";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { MeterRead } from "../fixtures/gen/fixtures/editions/v1/editions_postbox.js";
import { class$, delete$ } from "../fixtures/gen/fixtures/names/v1/delete_postbox.js";
import {
  file_fixtures_shop_v1_orders,
  type OrderPlacedEvent,
  OrderPlacedEventSchema,
} from "../fixtures/gen/fixtures/shop/v1/orders_pb.js";
import { OrderEventLost, OrderPlaced, OrderTaken, orders } from "../fixtures/gen/fixtures/shop/v1/orders_postbox.js";
import { WideEventSchema } from "../fixtures/gen/fixtures/wide/v1/wide_pb.js";
import { Ping } from "../fixtures/gen/no-package_postbox.js";
import { defineProtobufEvent } from "./define-protobuf-event.js";

describe("an event over a message", () => {
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
    const empty = publisher.publish(OrderPlaced, {});
    await expect(empty).rejects.toMatchObject({ code: "message-invalid", path: "key" });
    await expect(empty).rejects.toThrow(
      "its key, the field order_id of fixtures.shop.v1.OrderPlacedEvent, is empty; set 'orderId', or give the " +
        "message a key",
    );
  });

  it.each([
    ["no", "not one of its fields"],
    ["$typeName", "not one of its fields"],
    ["constructor", "not one of its fields"],
    ["part", "a message"],
    ["strings", "repeated"],
    ["labels", "a map"],
    ["chosenString", "part of a oneof"],
    ["colour", "an enum"],
    ["aDouble", "a double"],
    ["aFloat", "a float"],
    ["aBool", "a bool"],
    ["someBytes", "bytes"],
  ])("cannot have the key %s, which is %s", (key, what) => {
    expect(() => defineProtobufEvent({ type: "a.B", message: WideEventSchema, key: key as never })).toThrow(
      `[event-invalid] a.B: '${key}' cannot be the key of fixtures.wide.v1.WideEvent, since it is ${what}; name a ` +
        "single string or",
    );
  });

  it.each([undefined, file_fixtures_shop_v1_orders, OrderPlaced])(
    "is not defined over something that is not a message",
    (message) => {
      expect(() => defineProtobufEvent({ type: "a.B", message: message as never })).toThrow(
        "[event-invalid] defineProtobufEvent: 'message' of a.B is not a message descriptor; pass what " +
          "protoc-gen-es generates",
      );
    },
  );

  it("is not defined without options, nor with others than its own", () => {
    const define = defineProtobufEvent as (options?: unknown) => unknown;
    for (const options of [undefined, null, "a.B"]) {
      expect(() => define(options)).toThrow(
        `[option-invalid] defineProtobufEvent: options must be an object; got ${options}`,
      );
    }
    for (const name of ["schema", "codecs", "topics", "constructor"]) {
      expect(() => define({ type: "a.B", message: WideEventSchema, [name]: undefined })).toThrow(
        `[option-unknown] defineProtobufEvent: unknown option '${name}'; known are type, message, key, topic, `,
      );
    }
  });

  it("can have any other field as its key", () => {
    const fields = WideEventSchema.fields.filter((field) =>
      /^a(n?Int|Uint|Sint|Fixed|Sfixed|String)/.test(field.localName),
    );
    expect(fields).toHaveLength(11);
    for (const { localName } of fields) {
      defineProtobufEvent({ type: "a.B", message: WideEventSchema, key: localName as "aString" });
    }
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
    // Lists, maps, bytes and nested messages, as a constant.
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

  it("parks what a misspelt field would lose, which compiles unless the upcaster says what it returns", async () => {
    const misspelt = { orderId: "1", totalCnts: 1n };
    const Latest = defineProtobufEvent({
      type: "a.B",
      message: OrderPlacedEventSchema,
      upcast: [upcastFrom(OrderTaken, () => misspelt)],
    });
    // @ts-expect-error: no such field
    const told = { totalCnts: 1n } satisfies DataIn<typeof Latest>;
    expect(told).toBeDefined();
    const broker = memoryBroker();
    const log = telemetryLog();
    const router = createRouter("b", { telemetry: log.telemetry }).on(Latest, () => {});
    broker.bind("b", [OrderTaken]);
    await createPublisher(broker.sender(), { source: "/test" }).publish(OrderTaken, {});
    router.start(broker.receiver());
    await log.until("delivery.parked");
    await router.stop();
    expect(broker.parked("b")[0]?.reason).toMatchObject({
      code: "upcast-failed",
      message: expect.stringContaining("data.totalCnts: is not a field of fixtures.shop.v1.OrderPlacedEvent"),
    });
  });
});
