import { EntitySchema, MikroORM } from "@mikro-orm/postgresql";
import pg from "pg";
import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { mikroOrm } from "postbox/mikro-orm";
import { postgresStore } from "postbox/postgres";
import { OrderPlaced, requireCredit, tell } from "../../examples/02-transactions/src/story.js";

const Order = new EntitySchema<{ id: string; total: number }>({
  name: "Order",
  tableName: "orders",
  properties: { id: { type: "text", primary: true }, total: { type: "integer" } },
});
const Invoice = new EntitySchema<{ orderId: string; total: number }>({
  name: "Invoice",
  tableName: "invoices",
  properties: { orderId: { type: "text", primary: true }, total: { type: "integer" } },
});

const url = process.argv[2] as string;
const orm = await MikroORM.init({ clientUrl: url, entities: [Order, Invoice] });
const pool = new pg.Pool({ connectionString: url });
const store = postgresStore({ pool, transactions: mikroOrm(orm.em) });
const outbox = createOutbox(store, { source: "/orders" });

const placeOrder = (id: string, total: number) =>
  orm.em.fork().transactional(async (em) => {
    // MikroORM writes it on flush, at the latest before COMMIT, so it commits together with the message.
    em.create(Order, { id, total });
    await outbox.in(em).publish(OrderPlaced, { id, total });
    requireCredit(total);
  });

const billing = createRouter("billing")
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async ({ id, total }, { tx }) => {
    tx.create(Invoice, { orderId: id, total });
  });

await tell({ pool, store, placeOrder, billing });
await Promise.all([pool.end(), orm.close()]);
