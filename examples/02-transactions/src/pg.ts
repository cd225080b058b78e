import pg from "pg";
import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { postgresStore } from "postbox/postgres";
import { OrderPlaced, requireCredit, tell } from "./story.js";

const pool = new pg.Pool({ connectionString: process.argv[2] });
const store = postgresStore({ pool });
const outbox = createOutbox(store, { source: "/orders" });

// pg has no function that runs BEGIN … COMMIT, so the store's is used. With your own client, outbox.in(client) does the
// same.
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
