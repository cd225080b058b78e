import type pg from "pg";
import { createOutbox } from "postbox";
import { postgresStore } from "postbox/postgres";

export async function place(pool: pg.Pool): Promise<void> {
  const store = postgresStore({ pool });
  const outbox = createOutbox(store, { source: "/orders" });
  await store.transaction(async (tx) => {
    await tx.query("INSERT INTO orders VALUES (1)");
    await outbox.in(tx).send({ type: "shop.orders.v1.OrderPlaced" });
  });
}
