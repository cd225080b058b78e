import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { recordingSender, telemetryLog } from "@postbox/testkit";
import { createPublisher, createRouter, type EventDefinition, type Publisher, type RunsReceiver } from "postbox";
import type { AsyncApiDocument, Catalog, JsonSchema } from "postbox/catalog";
import { memoryBroker } from "postbox/memory";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { compile, root, snippets, tableOf, until } from "./snippets.js";

const guide = "docs/guides/schemas.md";
const folder = join(root, ".tmp", `schemas_${randomBytes(6).toString("hex")}`);
const load = <Exports>(file: string): Promise<Exports> => import(join(folder, file));

describe("the guide to schemas", () => {
  beforeAll(async () => {
    mkdirSync(folder, { recursive: true });
    await compile(folder, snippets(guide));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it("defines events with each library", async () => {
    const events = { ...(await load<object>("libraries.ts")), ...(await load<object>("typebox.ts")) };
    const { OrderCancelled, StockCounted, InvoicePaid, ParcelSent } = events as Record<string, EventDefinition>;
    expect(await OrderCancelled?.validate({ orderId: "1" })).toEqual({ orderId: "1", reason: "none given" });
    await expect(StockCounted?.validate({ article: "a", count: -1 })).rejects.toThrow("data.count: ");
    await expect(InvoicePaid?.validate({ invoiceId: "1", cents: 1.5 })).rejects.toThrow("data.cents: ");
    await expect(ParcelSent?.validate({ parcelId: "1", grams: "1" })).rejects.toThrow("data.grams: ");
  });

  it("handles both versions with one handler", async () => {
    const { OrderPlaced, OrderPlacedV1 } = await load<Record<string, EventDefinition>>("events.ts");
    const { billing, invoices } = await load<{ billing: RunsReceiver; invoices: string[] }>("billing.ts");
    const broker = memoryBroker();
    billing.start(broker.receiver());
    const publisher = createPublisher(broker.sender(), { source: "/orders" });
    await publisher.publish(OrderPlacedV1 as EventDefinition, { orderId: "1", total: 12.5 });
    const amount = { cents: 99, currency: "USD" };
    await publisher.publish(OrderPlaced as EventDefinition, { orderId: "2", amount });
    await until(() => invoices.length === 2);
    await billing.stop();
    expect(invoices.sort()).toEqual([
      "1: 1250 EUR, from shop.orders.v1.OrderPlaced",
      "2: 99 USD, from shop.orders.v2.OrderPlaced",
    ]);
  });

  it("reads what has no definition any more", async () => {
    const { CustomerMoved } = await load<{ CustomerMoved: EventDefinition }>("legacy.ts");
    const broker = memoryBroker();
    const log = telemetryLog();
    const got: unknown[] = [];
    const router = createRouter("crm", { telemetry: log.telemetry }).on(CustomerMoved, (data) => void got.push(data));
    router.start(broker.receiver());
    const publisher = createPublisher(broker.sender(), { source: "/mainframe" });
    for (const data of ['{"CUST_NO":"7"}', "{}"]) {
      await publisher.send({ type: "CUST_MOVED", topic: "mainframe", data: Buffer.from(data) });
    }
    await log.until("delivery.parked");
    await router.stop();
    expect(got).toEqual([{ customerId: "7" }]);
    expect(broker.parked("crm").map(({ reason }) => reason)).toMatchObject([{ code: "upcast-failed" }]);
  });

  it("publishes by type, and prints documents", async () => {
    const sender = recordingSender();
    const { cancel } = await load<{ cancel(to: Publisher, id: string): Promise<void> }>("publish.ts");
    await cancel(createPublisher(sender, { source: "/orders" }), "1");
    expect(sender.messages).toMatchObject([{ type: "shop.orders.v1.OrderCancelled", key: "1" }]);
    const printed = vi.spyOn(console, "log").mockImplementation(() => {});
    const { asyncApi, jsonSchema } = await load<{ asyncApi: AsyncApiDocument; jsonSchema: JsonSchema }>("documents.ts");
    expect(JSON.parse(printed.mock.calls[0]?.[0])).toEqual(asyncApi);
    printed.mockRestore();
    const { catalog } = await load<{ catalog: Catalog }>("catalog.ts");
    const types = catalog.events.map(({ type }) => type);
    expect(types).toHaveLength(5);
    expect(Object.keys(asyncApi.components.schemas)).toEqual(types);
    expect(Object.keys(jsonSchema.$defs as object)).toEqual(types);
    expect(Object.keys(asyncApi.operations).sort()).toEqual([
      "receive.shop.billing.v1",
      "receive.shop.shipping.v1",
      "receive.shop.stock.v1",
      "send.shop.orders.v1",
      "send.shop.orders.v2",
    ]);
  });

  it("knows who can read what", () => {
    const id = z.string();
    const size = z.enum(["s", "m"]);
    const data = { id: "1", note: "n", size: "m" };
    const before = z.object({ id, size });
    const changes: Record<string, [before: z.ZodType, after: z.ZodType, old: unknown, renewed: unknown]> = {
      "add an optional field, or one with a default": [
        before,
        before.extend({ note: z.string().optional(), more: z.string().default("x") }),
        { id: "1", size: "m" },
        { ...data, more: "y" },
      ],
      "add a required field": [before, before.extend({ note: z.string() }), { id: "1", size: "m" }, data],
      "remove a field that was optional": [
        before.extend({ note: z.string().optional() }),
        before,
        data,
        { id: "1", size: "m" },
      ],
      "remove a required field": [before, before.omit({ size: true }), data, { id: "1" }],
      "allow more: another value, a wider range": [
        before,
        before.extend({ size: z.enum(["s", "m", "l"]) }),
        data,
        { ...data, size: "l" },
      ],
      "allow less: a value fewer, a narrower range": [
        before,
        before.extend({ size: z.enum(["s"]) }),
        data,
        { ...data, size: "s" },
      ],
      "rename a field, change its type, its unit or its meaning": [
        before,
        z.object({ id: z.number(), size }),
        data,
        { ...data, id: 1 },
      ],
    };
    const rows = tableOf(guide, "change | old handlers read new messages | new handlers read old messages |");
    expect(rows.map(([change]) => change)).toEqual(Object.keys(changes));
    for (const [change = "", oldReads, newReads] of rows) {
      const [first, second, old, renewed] = changes[change] as (typeof changes)[string];
      // Each side must accept the messages that it publishes itself.
      expect([change, first.safeParse(old).success, second.safeParse(renewed).success]).toEqual([change, true, true]);
      const yes = (reads: boolean) => (reads ? "yes" : "no");
      expect([change, yes(first.safeParse(renewed).success), yes(second.safeParse(old).success)]).toEqual([
        change,
        oldReads,
        newReads,
      ]);
    }
  });
});
