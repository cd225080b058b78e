import pg from "pg";
import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { postgresStore } from "postbox/postgres";
import { OrderPlaced, requireCredit, tell } from "./story.js";

const pool = new pg.Pool({ connectionString: process.argv[2] });
const store = postgresStore({ pool });
const outbox = createOutbox(store, { source: "/orders" });

// BEGIN … COMMIT: pg itself has no call for that; with a client of your own, outbox.in(client) is the same.
const placeOrder = (id: string, total: number) =>
  store.transaction(async (client) => {
    await client.query("INSERT INTO orders VALUES ($1, $2)", [id, total]);
    await outbox.in(client).publish(OrderPlaced, { id, total });
    requireCredit(total);
  });

const billing = createRouter("billing")
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async ({ id, total }, { tx }) => {
    await tx.query("INSERT INTO invoices VALUES ($1, $2)", [id, total]);
  });

await tell({ pool, store, placeOrder, billing });
await pool.end();
