import pg from "pg";
import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { postgresStore } from "postbox/postgres";
import { typeorm } from "postbox/typeorm";
import { DataSource, EntitySchema } from "typeorm";
import { OrderPlaced, requireCredit, tell } from "../../examples/02-transactions/src/story.js";

const Order = new EntitySchema<{ id: string; total: number }>({
  name: "orders",
  columns: { id: { type: "text", primary: true }, total: { type: "integer" } },
});
const Invoice = new EntitySchema<{ orderId: string; total: number }>({
  name: "invoices",
  columns: { orderId: { name: "order_id", type: "text", primary: true }, total: { type: "integer" } },
});

const url = process.argv[2] as string;
const dataSource = await new DataSource({ type: "postgres", url, entities: [Order, Invoice] }).initialize();
const pool = new pg.Pool({ connectionString: url });
const store = postgresStore({ pool, transactions: typeorm(dataSource) });
const outbox = createOutbox(store, { source: "/orders" });

const placeOrder = (id: string, total: number) =>
  dataSource.transaction(async (manager) => {
    await manager.insert(Order, { id, total });
    await outbox.in(manager).publish(OrderPlaced, { id, total });
    requireCredit(total);
  });

const billing = createRouter("billing")
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async ({ id, total }, { tx }) => {
    await tx.insert(Invoice, { orderId: id, total });
  });

await tell({ pool, store, placeOrder, billing });
await Promise.all([pool.end(), dataSource.destroy()]);
