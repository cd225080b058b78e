import type { Pool } from "pg";
import { createRelay, defineEvent, type RunsReceiver, type Sender, type Store } from "postbox";
import { memoryBroker } from "postbox/memory";
import { z } from "zod";

/*
 * What all programs here share: two orders, one of which fails; a relay that sends every message twice; and a billing
 * service that writes a single invoice all the same.
 */

export const OrderPlaced = defineEvent({
  type: "shop.orders.v1.OrderPlaced",
  schema: z.object({ id: z.string(), total: z.number() }),
  key: (order) => order.id,
});

/** The parts that differ between libraries. */
export interface Service {
  /** For inspecting the tables outside any transaction of the library. */
  readonly pool: Pool;
  readonly store: Store;
  /**
   * Writes an order and its message in one transaction. If the credit does not cover `total`, it throws and both roll
   * back.
   */
  placeOrder(id: string, total: number): Promise<unknown>;
  /** Writes an invoice for each order. */
  readonly billing: RunsReceiver;
}

export function requireCredit(total: number): void {
  if (total > 100) throw new Error(`no credit for ${total}`);
}

/** The output of every program. */
export const story = `order-1: committed
order-2: rolled back, no credit for 1000
sent: 2 messages, of 1 order
invoices: 30 for order-1
`;

export async function tell({ pool, store, placeOrder, billing }: Service): Promise<void> {
  await store.migrate();
  await pool.query("CREATE TABLE orders (id text PRIMARY KEY, total integer NOT NULL)");
  await pool.query("CREATE TABLE invoices (order_id text NOT NULL, total integer NOT NULL)");

  for (const [id, total] of [
    ["order-1", 30],
    ["order-2", 1000],
  ] as const) {
    const outcome = await placeOrder(id, total).then(
      () => "committed",
      (error: Error) => `rolled back, ${error.message}`,
    );
    console.log(`${id}: ${outcome}`);
  }

  const broker = memoryBroker();
  broker.bind("billing", [OrderPlaced]);
  const ids: string[] = [];
  const relay = createRelay(store, twice(broker.sender(), ids), { pollIntervalMs: 20 });
  await relay.start();
  const handled = new Promise<void>((resolve) => {
    billing.start({
      name: "memory",
      receive(subscription, signal) {
        let settled = 0;
        const counted = (work: Promise<void>) => work.finally(() => ++settled === 2 && resolve());
        return broker.receiver().receive(
          {
            ...subscription,
            deliver: (delivery) => subscription.deliver({ ...delivery, ack: () => counted(delivery.ack()) }),
          },
          signal,
        );
      },
    });
  });
  await handled;
  await Promise.all([relay.stop(), billing.stop()]);

  const { rows } = await pool.query("SELECT order_id, total FROM invoices");
  console.log(`sent: ${ids.length} messages, of ${new Set(ids).size} order`);
  console.log(`invoices: ${rows.map(({ order_id, total }) => `${total} for ${order_id}`).join(", ")}`);
}

/** Sends every message twice, as a relay does after a lost confirm. */
function twice(sender: Sender, ids: string[]): Sender {
  return {
    ...sender,
    async send(messages, settled, signal) {
      ids.push(...messages.flatMap(({ id }) => [id, id]));
      await sender.send(messages, () => {}, signal);
      await sender.send(messages, settled, signal);
    },
  };
}
