import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";
import { createRelay } from "postbox";
import { connectTransport } from "postbox/connect";
import { billingService } from "./billing.js";
import { shop } from "./events.js";
import { deadAfterSending, sendingTwice } from "./faults.js";
import { ordersService } from "./orders.js";
import { printSummary, progressPrinter, summarise } from "./summary.js";

const { values } = parseArgs({
  options: {
    database: { type: "string", default: "pglite:" },
    broker: { type: "string", default: "memory:" },
    orders: { type: "string", default: "300" },
  },
});
const attempts = Number(values.orders);
if (!(Number.isInteger(attempts) && attempts > 0)) {
  console.error("--orders takes a whole number above 0");
  process.exit(2);
}
const rollBackEvery = 5;
const printProgress = progressPrinter();

console.log("Two services, each with a database of its own, and a broker between them:\n");
console.log("  orders ── outbox ── relay ──▶ broker ──▶ inbox ── billing");
console.log("  orders ── inbox ◀── broker ◀── relay ── outbox ── billing\n");
console.log(
  `1. Orders places ${attempts} orders. Every fifth transaction rolls back, every seventh message is sent twice.`,
);
console.log("   Watch: only committed orders are invoiced, and billing skips duplicates.\n");

const connect = async () => ({
  // Kafka makes no topics by itself.
  broker: await connectTransport(values.broker, {
    kafka: { receiver: { topology: "create", create: { partitions: 4 } } },
  }),
  orders: await ordersService(values.database),
  billing: await billingService(values.database),
});
const { broker, orders, billing } = await connect().catch((error: Error) => {
  console.error(`cannot connect: ${error.message}`);
  process.exit(2);
});
const sender = sendingTwice(broker.sender(), 7);
await orders.router.start(broker.receiver(`${shop}.orders`));
await billing.router.start(broker.receiver(`${shop}.billing`));

// A short lease, so that the second relay takes over soon after the first one stops. Sent messages are kept for the
// final count.
const options = { leaseMs: 3_000, pollIntervalMs: 100, publishTimeoutMs: 900, onSent: "keep" } as const;
let placed = 0;
let deaths = 0;
const { runtime, died } = deadAfterSending(() => placed >= attempts / 4);
const doomed = createRelay(orders.database.store, sender, {
  ...options,
  runtime,
  telemetry: (event) => {
    if (event.name === "relay.owned") second.start();
  },
});
const second = createRelay(orders.database.store, sender, {
  ...options,
  telemetry: (event) => {
    // Until the first relay stops, the two relays share the lanes.
    if (event.name === "relay.owned" && deaths > 0) {
      console.log(
        "\n3. The lease of the dead relay has expired, and the second relay takes over its lanes. It resends",
      );
      console.log("   what the dead relay sent without recording it. Watch: the outboxes drain, and billing skips");
      console.log("   what it has handled.\n");
    }
  },
});
const billingRelay = createRelay(billing.database.store, sender, options);
doomed.start();
billingRelay.start();
void died.then(() => {
  deaths++;
  console.log("\n2. A relay of orders was just stopped dead: it had sent a message and not yet recorded that.");
  console.log("   Watch: orders keep committing, their messages wait in the outbox, and nothing is lost.\n");
});

const placing = (async () => {
  for (let number = 1; number <= attempts; number++) {
    const orderId = `order-${number}`;
    await orders.place(orderId, number, number % rollBackEvery === 0).catch(() => {});
    placed++;
    // Slow enough to watch.
    await pause(5);
  }
})();

const deadline = Date.now() + 45_000;
for (let done = false; !done && Date.now() < deadline; await pause(200)) {
  const allPlaced = placed === attempts;
  const now = await summarise(orders.database, billing.database);
  printProgress(now);
  done = now.settled && allPlaced;
}
await placing;
await Promise.all([second.stop(), billingRelay.stop(), orders.router.stop(), billing.router.stop()]);

console.log("\n4. Everything is settled. What the rows of both databases prove:");
const summary = await summarise(orders.database, billing.database);
const holds = printSummary(summary, attempts, deaths);
await Promise.all([orders.database.close(), billing.database.close(), broker.close()]);
process.exit(holds ? 0 : 1);
