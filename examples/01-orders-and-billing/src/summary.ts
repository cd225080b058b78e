import { inboxOf } from "postbox";
import type { Database } from "./service.js";

/** Counts taken from the rows of both databases, and from nothing else. */
export interface Summary {
  readonly attempted: number;
  readonly committed: number;
  readonly rolledBack: number;
  /** Messages still in an outbox. */
  readonly waiting: number;
  readonly parked: number;
  /** Messages that the relay of orders has recorded as sent. */
  readonly sent: number;
  readonly delivered: number;
  readonly duplicates: number;
  /** Messages that the inbox of billing remembers. */
  readonly remembered: number;
  readonly handledOnce: number;
  readonly handledTwice: number;
  /** Committed orders without an invoice. */
  readonly lost: number;
  /** Rolled-back orders with an invoice. */
  readonly ghosts: number;
  readonly confirmedBack: number;
  readonly settled: boolean;
}

const ofOrders = `select a.order_id, o.status from $own.attempts a left join $own.orders o using (order_id)`;
const ofBilling =
  "select count(*) as delivered, count(*) - count(distinct message_id) as duplicates from $own.deliveries";
const ofInvoices = "select order_id, count(*) as count from $own.invoices group by order_id";

export async function summarise(orders: Database, billing: Database): Promise<Summary> {
  // The outboxes are counted before the orders, so that an order placed in between is not counted as lost.
  const out = await outbox(orders);
  const back = await outbox(billing);
  const attempts = (await orders.run(ofOrders)) as { order_id: string; status: string | null }[];
  const perOrder = (await billing.run(ofInvoices)) as { order_id: string; count: string }[];
  const { delivered = 0, duplicates = 0 } = await figures(billing, ofBilling);
  const remembered = await rememberedBy(billing, "billing");

  const invoices = new Map(perOrder.map(({ order_id, count }) => [order_id, Number(count)]));
  const placed = attempts.filter(({ status }) => status !== null);
  const rolledBack = attempts.filter(({ status }) => status === null);
  const times = placed.map(({ order_id }) => invoices.get(order_id) ?? 0);
  const waiting = out.waiting + back.waiting;
  const lost = times.filter((count) => count === 0).length;
  const confirmedBack = placed.filter(({ status }) => status === "invoiced").length;
  return {
    attempted: attempts.length,
    committed: placed.length,
    rolledBack: rolledBack.length,
    waiting,
    parked: out.parked + back.parked,
    sent: out.sent,
    delivered,
    duplicates,
    remembered,
    handledOnce: times.filter((count) => count === 1).length,
    handledTwice: [...invoices.values()].filter((count) => count > 1).length,
    lost,
    ghosts: rolledBack.filter(({ order_id }) => invoices.has(order_id)).length,
    confirmedBack,
    settled: waiting === 0 && lost === 0 && confirmedBack === placed.length,
  };
}

async function outbox({ store }: Database) {
  const { pending, waiting, parked, done } = await store.admin.stats({ done: true });
  return { waiting: pending.count + waiting.count, parked: parked.count, sent: done?.count ?? 0 };
}

/** How many messages a consumer has handled. Its box exists once it has received one. */
async function rememberedBy({ store: { admin } }: Database, consumer: string): Promise<number> {
  const box = inboxOf(consumer);
  const hasRun = (await admin.boxes()).includes(box);
  return hasRun ? ((await admin.stats({ box, done: true })).done?.count ?? 0) : 0;
}

/** Runs a query with one row of numbers and returns that row. */
async function figures({ run }: Database, query: string): Promise<Record<string, number>> {
  const [row = {}] = await run(query);
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, Number(value)]));
}

/** Prints a line of progress whenever a count has changed. */
export function progressPrinter(): (summary: Summary) => void {
  let last = "";
  return ({ committed, rolledBack, waiting, handledOnce, duplicates, confirmedBack }) => {
    const line =
      `  committed ${committed}, rolled back ${rolledBack}, in the outboxes ${waiting}, ` +
      `invoiced ${handledOnce}, duplicates skipped ${duplicates}, confirmed back ${confirmedBack}`;
    if (line !== last) console.log(line);
    last = line;
  };
}

/** Prints the table. Returns whether every guarantee held. */
export function printSummary(summary: Summary, attempts: number, deaths: number): boolean {
  const { committed, rolledBack, sent, delivered, duplicates } = summary;
  const rows: [string, number, boolean][] = [
    ["orders attempted", summary.attempted, summary.attempted === attempts],
    ["orders committed", committed, committed === attempts - Math.floor(attempts / 5)],
    ["orders rolled back", rolledBack, committed + rolledBack === attempts],
    ["messages sent", sent, sent === committed],
    ["messages delivered to billing", delivered, delivered === committed + duplicates],
    ["handled once", summary.handledOnce, summary.handledOnce === committed],
    // Without a stopped relay and duplicates, the demo would prove nothing.
    ["relays that stopped dead", deaths, deaths === 1],
    ["duplicates skipped", duplicates, duplicates > 0],
    ["handled twice", summary.handledTwice, summary.handledTwice === 0],
    ["invoices of rolled-back orders", summary.ghosts, summary.ghosts === 0],
    ["remembered by the inbox", summary.remembered, summary.remembered === committed],
    ["orders that heard of their invoice", summary.confirmedBack, summary.confirmedBack === committed],
    ["parked", summary.parked, summary.parked === 0],
    ["lost", summary.lost, summary.lost === 0],
  ];
  console.log();
  for (const [name, value, holds] of rows) {
    console.log(`  ${name.padEnd(36)}${String(value).padStart(6)}  ${holds ? "✓" : "✗ does not hold"}`);
  }
  return rows.every(([, , holds]) => holds);
}
