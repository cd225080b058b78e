import pg from "pg";
import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { postgresStore } from "postbox/postgres";
import { postgresJs } from "postbox/postgres-js";
import postgres from "postgres";
import { OrderPlaced, requireCredit, tell } from "./story.js";

const url = process.argv[2] as string;
const sql = postgres(url);
const pool = new pg.Pool({ connectionString: url });
const store = postgresStore({ pool, transactions: postgresJs(sql) });
const outbox = createOutbox(store, { source: "/orders" });

const placeOrder = (id: string, total: number) =>
  sql.begin(async (tx) => {
    await tx`INSERT INTO orders ${tx({ id, total })}`;
    await outbox.in(tx).publish(OrderPlaced, { id, total });
    requireCredit(total);
  });

const billing = createRouter("billing")
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async ({ id, total }, { tx }) => {
    await tx`INSERT INTO invoices ${tx({ order_id: id, total })}`;
  });

await tell({ pool, store, placeOrder, billing });
await Promise.all([pool.end(), sql.end()]);
