import { drizzle as drizzleOrm } from "drizzle-orm/postgres-js";
import pg from "pg";
import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { drizzle } from "postbox/drizzle";
import { postgresStore } from "postbox/postgres";
import postgres from "postgres";
import { OrderPlaced, requireCredit, tell } from "./story.js";
import { invoices, orders } from "./tables.js";

const url = process.argv[2] as string;
const sql = postgres(url);
const pool = new pg.Pool({ connectionString: url });
const db = drizzleOrm(sql);
const store = postgresStore({ pool, transactions: drizzle(db) });
const outbox = createOutbox(store, { source: "/orders" });

const placeOrder = (id: string, total: number) =>
  db.transaction(async (tx) => {
    await tx.insert(orders).values({ id, total });
    await outbox.in(tx).publish(OrderPlaced, { id, total });
    requireCredit(total);
  });

const billing = createRouter("billing")
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async ({ id, total }, { tx }) => {
    await tx.insert(invoices).values({ orderId: id, total });
  });

await tell({ pool, store, placeOrder, billing });
await Promise.all([pool.end(), sql.end()]);
