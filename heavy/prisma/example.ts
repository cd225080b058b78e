import { PrismaPg } from "@prisma/adapter-pg";
import pg from "pg";
import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { postgresStore } from "postbox/postgres";
import { prisma } from "postbox/prisma";
import { OrderPlaced, requireCredit, tell } from "../../examples/02-transactions/src/story.js";
import { PrismaClient } from "./generated/client.js";

const url = process.argv[2] as string;
const client = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
const pool = new pg.Pool({ connectionString: url });
const store = postgresStore({ pool, transactions: prisma(client) });
const outbox = createOutbox(store, { source: "/orders" });

const placeOrder = (id: string, total: number) =>
  client.$transaction(async (tx) => {
    await tx.order.create({ data: { id, total } });
    await outbox.in(tx).publish(OrderPlaced, { id, total });
    requireCredit(total);
  });

const billing = createRouter("billing")
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async ({ id, total }, { tx }) => {
    await tx.invoice.create({ data: { orderId: id, total } });
  });

await tell({ pool, store, placeOrder, billing });
await Promise.all([pool.end(), client.$disconnect()]);
