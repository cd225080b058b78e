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
import { kafkaReceiver, kafkaSender } from "postbox/kafka";
import { memoryStore } from "postbox/memory";
import { z } from "zod";

const url = process.env.KAFKA_URL ?? "kafka://127.0.0.1:9092";
const group = `billing-${process.pid}`;
const topic = `shop.orders.p${process.pid}`;
const store = memoryStore();
const nobody = () => {};
const logger: TextLogger = { debug: nobody, info: nobody, warn: console.warn, error: console.error };

const OrderPlaced = defineEvent({
  type: `${topic}.OrderPlaced`,
  schema: z.object({ orderId: z.string(), total: z.number() }),
  key: (order) => order.orderId,
});

// Publish inside your transaction. The relay then sends the message to the topic of the event.
const outbox = createOutbox(store, { source: "/orders" });
const sender = kafkaSender({ url, clientId: "orders relay", create: { partitions: 12 }, telemetry: logTo(logger) });
await sender.setup([OrderPlaced]);
const relay = createRelay(store, sender, { pollIntervalMs: 50 });

// Handle: the processes of a consumer are one group, which shares the partitions.
let knowsOrder = false;
const billed = new Set<string>();
const router = createRouter("billing", { maxAttempts: 1 })
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async (order, { origin }) => {
    if (order.orderId === "order-2" && !knowsOrder) throw new Error("no such customer");
    console.log(`billed ${order.orderId} of ${origin?.partition?.replace(topic, "shop.orders")}`);
    billed.add(order.orderId);
  });
const receiver = kafkaReceiver({ url, group, prefetch: 50, clientId: "billing", telemetry: logTo(logger) });
if (await router.start(receiver)) await relay.start();

await store.transaction(async () => {
  await outbox.publish(OrderPlaced, { orderId: "order-1", total: 30 });
  await outbox.publish(OrderPlaced, { orderId: "order-2", total: 40 });
});
const until = async (done: () => boolean | Promise<boolean>) => {
  while (!(await done())) await new Promise((resolve) => setTimeout(resolve, 50));
};
await until(() => billed.has("order-1"));

// For a health probe: the last known status, without a request to the brokers.
console.log(`sender ${sender.health().status}, receiver ${receiver.health().status}`);

// A message that failed is parked in the database, and its partition goes on.
const parked = async () => (await store.admin.list({ box: "inbox/billing", status: "parked" })).messages;
await until(async () => (await parked()).length === 1);
const [failed] = await parked();
console.log(`parked: ${failed?.lastError}`);
knowsOrder = true;
await store.admin.retry({ box: "inbox/billing", ids: [failed?.id as string] }, { by: "me" });
await until(() => billed.has("order-2"));

// A topic that another program writes, such as Debezium's outbox router: map its records to messages.
const foreign = kafkaReceiver({
  url,
  group,
  fromForeign: ({ headers: { id = "", eventType }, value }) => ({
    id,
    source: "/legacy",
    type: `${topic}.${eventType}`,
    ...(value && { data: value }),
  }),
});
console.log(`${foreign.name} delivers by ${foreign.selects}`);

await Promise.all([relay.stop(), router.stop()]);
