import {
  createOutbox,
  createRelay,
  createRouter,
  defineEvent,
  inbox,
  logTo,
  type TextLogger,
  transaction,
} from "postbox";
import { memoryStore } from "postbox/memory";
import { rabbitmqParkingLot, rabbitmqReceiver, rabbitmqSender } from "postbox/rabbitmq";
import { z } from "zod";
import { removeTopology } from "./remove-topology.js";

const url = process.env.AMQP_URL ?? "amqp://guest:guest@127.0.0.1:5672";
const queue = `billing-${process.pid}`;
const topic = `shop.orders.p${process.pid}`;
const store = memoryStore();
const nobody = () => {};
const logger: TextLogger = { debug: nobody, info: nobody, warn: console.warn, error: console.error };

const OrderPlaced = defineEvent({
  type: `${topic}.OrderPlaced`,
  schema: z.object({ orderId: z.string(), total: z.number() }),
  key: (order) => order.orderId,
});

// Publish inside your transaction. The relay then sends the message to the exchange named after the event's topic.
const outbox = createOutbox(store, { source: "/orders" });
const sender = rabbitmqSender({ url, connectionName: "orders relay", telemetry: logTo(logger) });
await sender.setup([OrderPlaced]);
const relay = createRelay(store, sender, { pollIntervalMs: 50 });

// Handle: the consumer has its own queue, bound to the events that it has handlers for.
let knowsOrder = false;
const router = createRouter("billing", { maxAttempts: 1 })
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async (order) => {
    if (order.orderId === "order-2" && !knowsOrder) throw new Error("no such customer");
    console.log(`billed ${order.orderId}`);
    billed.add(order.orderId);
  });
const billed = new Set<string>();
const receiver = rabbitmqReceiver({ url, queue, prefetch: 50, connectionName: "billing", telemetry: logTo(logger) });
if (await router.start(receiver)) await relay.start();

await store.transaction(async () => {
  await outbox.publish(OrderPlaced, { orderId: "order-1", total: 30 });
  await outbox.publish(OrderPlaced, { orderId: "order-2", total: 40 });
});
const until = async (done: () => boolean | Promise<boolean>) => {
  while (!(await done())) await new Promise((resolve) => setTimeout(resolve, 50));
};
await until(() => billed.has("order-1"));

// For a health probe: the last known status, without a request to the broker.
console.log(`sender ${sender.health().status}, receiver ${receiver.health().status}`);

// A message that the inbox has stored is parked in the database, and retried from there.
const parked = async () => (await store.admin.list({ box: "inbox/billing", status: "parked" })).messages;
await until(async () => (await parked()).length === 1);
const [failed] = await parked();
console.log(`parked: ${failed?.lastError}`);
knowsOrder = true;
await store.admin.retry({ box: "inbox/billing", ids: [failed?.id as string] }, { by: "me" });
await until(() => billed.has("order-2"));

// Without an inbox, or if the delivery is no valid event, the message is parked on the broker, in <queue>.parked.
const lot = rabbitmqParkingLot({ url, queue });
console.log(`parked on the broker: ${await lot.count()}, replayed: ${await lot.replay({ limit: 100 })}`);

await Promise.all([relay.stop(), router.stop()]);
await removeTopology(url, queue, topic);
