import createKnex from "knex";
import pg from "pg";
import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { knex } from "postbox/knex";
import { postgresStore } from "postbox/postgres";
import { OrderPlaced, requireCredit, tell } from "./story.js";

const url = process.argv[2] as string;
const db = createKnex({ client: "pg", connection: url });
const pool = new pg.Pool({ connectionString: url });
const store = postgresStore({ pool, transactions: knex(db) });
const outbox = createOutbox(store, { source: "/orders" });

const placeOrder = (id: string, total: number) =>
  db.transaction(async (trx) => {
    await trx("orders").insert({ id, total });
    await outbox.in(trx).publish(OrderPlaced, { id, total });
    requireCredit(total);
  });

const billing = createRouter("billing")
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async ({ id, total }, { tx }) => {
    await tx("invoices").insert({ order_id: id, total });
  });

await tell({ pool, store, placeOrder, billing });
await Promise.all([pool.end(), db.destroy()]);
