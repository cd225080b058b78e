import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createOutbox, createRelay, createRouter, defineEvent, inbox, transaction } from "postbox";
import { memoryBroker } from "postbox/memory";
import { z } from "zod";
import { jsonStore } from "./json-store.js";

const folder = await mkdtemp(join(tmpdir(), "json-store-"));
const file = join(folder, "shop.json");
const store = jsonStore({ file });

const OrderPlaced = defineEvent({
  type: "shop.orders.OrderPlaced",
  schema: z.object({ orderId: z.string(), total: z.number() }),
  key: (order) => order.orderId,
});

// One commit writes the order and its event, so a crash leaves both or neither.
const outbox = createOutbox(store, { source: "/orders" });
await store.transaction(async (tx) => {
  tx.set("order-1", { total: 30 });
  await outbox.publish(OrderPlaced, { orderId: "order-1", total: 30 });
});
console.log("committed: order-1 and its event");

const failing = store.transaction(async (tx) => {
  tx.set("order-2", { total: 40 });
  await outbox.publish(OrderPlaced, { orderId: "order-2", total: 40 });
  throw new Error("no stock");
});
await assert.rejects(failing, /no stock/);
console.log("rolled back: order-2 and its event");

// The inbox remembers the message in the same transaction in which the handler writes the bill.
const broker = memoryBroker();
const router = createRouter("billing")
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async ({ orderId, total }, { tx }) => {
    tx.set(`bill for ${orderId}`, { total });
    console.log(`billed: ${orderId}`);
  });
const receiver = broker.receiver();
const relay = createRelay(store, broker.sender(), { pollIntervalMs: 20 });
if (await router.start(receiver)) await relay.start();
const billed = () => store.transaction(async (tx) => tx.get("bill for order-1"));
while ((await billed()) === undefined) await new Promise((resolve) => setTimeout(resolve, 20));
await Promise.all([relay.stop(), router.stop()]);

// What another process reads from the file.
const { documents }: { readonly documents: readonly (readonly [name: string, value: unknown])[] } = JSON.parse(
  await readFile(file, "utf8"),
);
assert.deepEqual(documents, [
  ["order-1", { total: 30 }],
  ["bill for order-1", { total: 30 }],
]);
assert.deepEqual((await store.admin.list()).messages, []);
const { problems } = await store.health();
console.log(`in the file: ${documents.map(([name]) => name).join(", ")}`);
console.log(`health: ${problems.map(({ text }) => text).join("; ") || "no problem"}`);
await rm(folder, { recursive: true });
