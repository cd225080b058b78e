import { type BaseContext, createOutbox, createRouter, inbox, outboxOutputs, transaction } from "postbox";
import { defineMiddleware, type Next } from "postbox/middleware";
import { InvoiceIssued, OrderPlaced } from "./events.js";
import { type Database, openDatabase } from "./service.js";

// No constraint forbids a second invoice for an order: only the inbox prevents it.
const tables = [
  "create table $own.deliveries (message_id text not null)",
  "create table $own.invoices (invoice_id $id, order_id text not null, total int not null)",
];

/** The billing service: writes one invoice for every order and publishes `InvoiceIssued`. */
export async function billingService(url: string) {
  const database: Database = await openDatabase(url, "billing", tables);
  const { store } = database;
  const outbox = createOutbox(store, { source: "/billing" });

  return {
    database,
    router: createRouter("billing")
      .use(noteDelivery(database))
      .use(transaction(store))
      .use(inbox(store))
      .use(outboxOutputs(outbox))
      .on(OrderPlaced, async ({ orderId, total }, { tx }) => {
        const sql = "insert into $own.invoices (order_id, total) values ($1, $2) returning invoice_id";
        const [invoice] = await database.in(tx)(sql, [orderId, total]);
        return [InvoiceIssued.message({ orderId, invoiceId: Number(invoice?.invoice_id) })];
      }),
  };
}

/** Records every delivery outside the transaction, including duplicates that the inbox skips. */
function noteDelivery({ run }: Database) {
  return defineMiddleware({
    name: "note-delivery",
    async run({ message }: BaseContext, next: Next) {
      await run("insert into $own.deliveries values ($1)", [message.id]);
      return next();
    },
  });
}
