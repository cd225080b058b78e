import { recordingSender, telemetryLog } from "@postbox/testkit";
import { createOutbox, createPublisher, createRelay, createRouter, publishOutputs } from "postbox";
import { defineCatalog } from "postbox/catalog";
import { memoryBroker, memoryStore } from "postbox/memory";
import { describe, expect, it } from "vitest";
import { EventService } from "../fixtures/gen/fixtures/names/v1/delete_postbox.js";
import {
  createOrdersPublisher,
  OrderEventLost,
  OrderPlaced,
  OrderTaken,
  onOrderPlaced,
  orders,
} from "../fixtures/gen/fixtures/shop/v1/orders_postbox.js";
import { WideEventSchema } from "../fixtures/gen/fixtures/wide/v1/wide_pb.js";
import { Wide } from "../fixtures/gen/fixtures/wide/v1/wide_postbox.js";
import { defineProtobufEvent } from "./define-protobuf-event.js";

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

  it("is listed in a catalog with its message and its comment, and published by type", async () => {
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
    const descriptions = catalog.events.map(({ type }) => document.components.messages[type]?.description);
    expect(descriptions).toEqual([
      undefined,
      "Somebody ordered something.\n\n  * lists keep their shape\n\nA comment that ends comments: */ is no problem.",
      "Use OrderPlaced.",
      "Every kind of field that there is.",
    ]);
    expect(EventService.docs.description).toBe(
      'In a block, with a "quote", a \\ and a $' + "{brace}.\n\n  - lists keep their shape",
    );
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
    expect(() => defineProtobufEvent({ type: "a.B", message: WideEventSchema, key: "someBytes" })).toThrow();
    // @ts-expect-error: no field
    expect(() => defineProtobufEvent({ type: "a.B", message: WideEventSchema, key: "$typeName" })).toThrow();
    expect([given, wrong]).toBeDefined();
  });
});
