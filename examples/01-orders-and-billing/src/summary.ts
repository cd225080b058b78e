import type { Database } from "./service.js";

export interface Summary {
  readonly committed: number;
  readonly rolledBack: number;
  readonly waiting: number;
  readonly parked: number;
  readonly delivered: number;
  readonly duplicatesSkipped: number;
  /** What the inbox of billing remembers. */
  readonly remembered: number;
  readonly handledOnce: number;
  readonly handledTwice: number;
  /** Committed orders that have no invoice. */
  readonly lost: number;
  /** Invoices of orders that were rolled back. */
  readonly ghosts: number;
  readonly confirmedBack: number;
  readonly settled: boolean;
}

/** What the rows of both databases say. Only deliveries and skipped duplicates leave no row; those were counted. */
export async function summarise(
  orders: Database,
  billing: Database,
  rolledBack: readonly string[],
  seen: { readonly delivered: number; readonly duplicates: number },
): Promise<Summary> {
  // First what is waiting and then what has been placed: an order that is placed in between must not look lost.
  const boxes = [await orders.outbox(), await billing.outbox()];
  const placed = (await orders.pool.query(`select order_id, status from ${orders.schema}.orders`)).rows;
  const perOrder = await billing.pool.query(
    `select order_id, count(*)::int as count from ${billing.schema}.invoices group by order_id`,
  );
  const remembered = await billing.count(`select count(*) from demo_billing_postbox.inbox_message`);
  const invoices = new Map<string, number>(perOrder.rows.map(({ order_id, count }) => [order_id, count]));
  const times = placed.map(({ order_id }) => invoices.get(order_id) ?? 0);
  const lost = times.filter((count) => count === 0).length;
  const confirmedBack = placed.filter(({ status }) => status === "invoiced").length;
  const waiting = boxes.reduce((sum, box) => sum + box.waiting, 0);
  return {
    committed: placed.length,
    rolledBack: rolledBack.length,
    waiting,
    parked: boxes.reduce((sum, box) => sum + box.parked, 0),
    delivered: seen.delivered,
    duplicatesSkipped: seen.duplicates,
    remembered,
    handledOnce: times.filter((count) => count === 1).length,
    handledTwice: [...invoices.values()].filter((count) => count > 1).length,
    lost,
    ghosts: rolledBack.filter((orderId) => invoices.has(orderId)).length,
    confirmedBack,
    settled: waiting === 0 && lost === 0 && confirmedBack === placed.length,
  };
}

/** Prints a line whenever something has changed. */
export function progressPrinter(): (summary: Summary) => void {
  let last = "";
  return ({ committed, rolledBack, waiting, handledOnce, duplicatesSkipped, confirmedBack }) => {
    const line =
      `  committed ${committed}, rolled back ${rolledBack}, in the outboxes ${waiting}, ` +
      `invoiced ${handledOnce}, duplicates skipped ${duplicatesSkipped}, confirmed back ${confirmedBack}`;
    if (line !== last) console.log(line);
    last = line;
  };
}

/** Prints the table and says whether the promises held. */
export function printSummary(summary: Summary, attempts: number, deaths: number): boolean {
  const sent = summary.committed - summary.waiting - summary.parked;
  const rows: [string, number, boolean][] = [
    ["orders committed", summary.committed, summary.committed + summary.rolledBack === attempts],
    ["orders rolled back", summary.rolledBack, attempts < 5 || summary.rolledBack > 0],
    ["messages sent", sent, sent === summary.committed],
    ["messages delivered to billing", summary.delivered, summary.delivered >= sent],
    ["handled once", summary.handledOnce, summary.handledOnce === summary.committed],
    // Without a dead relay and duplicates the demo would have shown nothing.
    ["relays that stopped dead", deaths, deaths === 1],
    ["duplicates skipped", summary.duplicatesSkipped, summary.duplicatesSkipped > 0],
    ["handled twice", summary.handledTwice, summary.handledTwice === 0],
    ["invoices of rolled-back orders", summary.ghosts, summary.ghosts === 0],
    ["remembered by the inbox", summary.remembered, summary.remembered === summary.committed],
    ["orders that heard of their invoice", summary.confirmedBack, summary.confirmedBack === summary.committed],
    ["parked", summary.parked, summary.parked === 0],
    ["lost", summary.lost, summary.lost === 0],
  ];
  console.log();
  for (const [name, value, holds] of rows) {
    console.log(`  ${name.padEnd(36)}${String(value).padStart(6)}  ${holds ? "✓" : "✗ does not hold"}`);
  }
  return rows.every(([, , holds]) => holds);
}
