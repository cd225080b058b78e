import { Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { kysely } from "postbox/kysely";
import { postgresStore } from "postbox/postgres";
import { OrderPlaced, requireCredit, tell } from "./story.js";

interface Tables {
  orders: { id: string; total: number };
  invoices: { order_id: string; total: number };
}

const pool = new pg.Pool({ connectionString: process.argv[2] });
const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
const store = postgresStore({ pool, transactions: kysely(db) });
const outbox = createOutbox(store, { source: "/orders" });

const placeOrder = (id: string, total: number) =>
  db.transaction().execute(async (trx) => {
    await trx.insertInto("orders").values({ id, total }).execute();
    await outbox.in(trx).publish(OrderPlaced, { id, total });
    requireCredit(total);
  });

const billing = createRouter("billing")
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async ({ id, total }, { tx }) => {
    await tx.insertInto("invoices").values({ order_id: id, total }).execute();
  });

await tell({ pool, store, placeOrder, billing });
await db.destroy();
