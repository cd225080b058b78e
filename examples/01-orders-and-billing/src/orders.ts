import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { InvoiceIssued, OrderPlaced } from "./events.js";
import { type Database, openDatabase } from "./service.js";

const tables = [
  "create table $own.attempts (order_id text primary key)",
  "create table $own.orders (order_id text primary key, total int not null, status text not null)",
];

/** The orders service: places orders, and marks an order as invoiced when billing reports its invoice. */
export async function ordersService(url: string) {
  const database: Database = await openDatabase(url, "orders", tables);
  const { store } = database;
  const outbox = createOutbox(store, { source: "/orders" });

  return {
    database,

    /**
     * Writes the order and its message in one transaction. If `fails` is true, the transaction rolls back after both
     * writes.
     */
    async place(orderId: string, total: number, fails: boolean): Promise<void> {
      // Outside the transaction, so that a rolled-back order leaves a trace.
      await database.run("insert into $own.attempts values ($1)", [orderId]);
      await store.transaction(async (tx) => {
        await database.in(tx)("insert into $own.orders values ($1, $2, 'placed')", [orderId, total]);
        await outbox.in(tx).publish(OrderPlaced, { orderId, total });
        if (fails) throw new Error("the customer's card was refused");
      });
    },

    router: createRouter("orders")
      .use(transaction(store))
      .use(inbox(store))
      .on(InvoiceIssued, async ({ orderId }, { tx }) => {
        await database.in(tx)("update $own.orders set status = 'invoiced' where order_id = $1", [orderId]);
      }),
  };
}
