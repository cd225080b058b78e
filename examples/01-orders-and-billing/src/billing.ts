import { createOutbox, createRouter, inbox, outboxOutputs, type Telemetry, transaction } from "postbox";
import { InvoiceIssued, OrderPlaced } from "./events.js";
import { type Database, openDatabase } from "./service.js";

// Nothing here forbids a second invoice for an order: only the inbox prevents it.
const tables =
  "create table $schema.invoices (invoice_id int generated always as identity, order_id text not null, total int not null)";

/** Writes an invoice for every order, once, and says so. */
export async function billingService(url: string, telemetry: Telemetry) {
  const database: Database = await openDatabase(url, "billing", tables);
  const { store, schema } = database;
  const outbox = createOutbox(store, { source: "/billing" });

  return {
    database,
    router: createRouter("billing", { telemetry })
      .use(transaction(store))
      .use(inbox(store))
      .use(outboxOutputs(outbox))
      .on(OrderPlaced, async ({ orderId, total }, { tx }) => {
        const sql = `insert into ${schema}.invoices (order_id, total) values ($1, $2) returning invoice_id`;
        const { rows } = await tx.query(sql, [orderId, total]);
        return [InvoiceIssued.message({ orderId, invoiceId: rows[0].invoice_id })];
      }),
  };
}
