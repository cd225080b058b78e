import { createOutbox, createRouter, inbox, type Telemetry, transaction } from "postbox";
import { InvoiceIssued, OrderPlaced } from "./events.js";
import { type Database, openDatabase } from "./service.js";

const tables = "create table $schema.orders (order_id text primary key, total int not null, status text not null)";

/** Takes orders, and notes which have been invoiced. */
export async function ordersService(url: string, telemetry: Telemetry) {
  const database: Database = await openDatabase(url, "orders", tables);
  const { store, schema } = database;
  const outbox = createOutbox(store, { source: "/orders" });

  return {
    database,

    /** The order and its message, in one transaction. `fails` makes it roll back after both were written. */
    async place(orderId: string, total: number, fails: boolean): Promise<void> {
      await store.transaction(async (tx) => {
        await tx.query(`insert into ${schema}.orders values ($1, $2, 'placed')`, [orderId, total]);
        await outbox.in(tx).publish(OrderPlaced, { orderId, total });
        if (fails) throw new Error("the customer's card was refused");
      });
    },

    router: createRouter("orders", { telemetry })
      .use(transaction(store))
      .use(inbox(store))
      .on(InvoiceIssued, async ({ orderId }, { tx }) => {
        await tx.query(`update ${schema}.orders set status = 'invoiced' where order_id = $1`, [orderId]);
      }),
  };
}
