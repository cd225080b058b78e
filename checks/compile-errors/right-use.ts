import type { NodePgDatabase } from "drizzle-orm/node-postgres";
import type { PgDatabase, PgQueryResultHKT, PgTransaction } from "drizzle-orm/pg-core";
import type { PgliteDatabase } from "drizzle-orm/pglite";
import type { Client, ClientBase, Pool, PoolClient } from "pg";
import { type BaseContext, type Codec, correlation, createMessaging, createOutbox, createPublisher, createRelay, createRouter, deadline, defineEvent, type Handlers, inbox, type Messaging, messagingOptionsFromEnv, outboxOutputs, outboxReceiver, type Published, type Publisher, publishOutputs, type Receiver, type Registration, type RouterOptions, recover, retry, type Sender, type Store, timeout, transaction, upcastFrom, withUpcast } from "postbox";
import { defineCatalog } from "postbox/catalog";
import { drizzle } from "postbox/drizzle";
import { defineMiddleware, type InTransaction, type Next } from "postbox/middleware";
import { postgresStore } from "postbox/postgres";
import { createSchedule } from "postbox/schedule";
import * as v from "valibot";
import { z } from "zod";
import * as v1 from "../../examples/04-books/src/gen/example/books/v1/books_postbox.js";
import * as v2 from "../../examples/04-books/src/gen/example/books/v2/books_postbox.js";

export const OrderPlaced = defineEvent({
  type: "shop.orders.v1.OrderPlaced",
  schema: z.object({ orderId: z.string(), total: z.number(), note: z.string().default("") }),
  key: (order) => order.orderId,
});
export const InvoiceIssued = defineEvent({
  type: "shop.billing.v1.InvoiceIssued",
  schema: v.object({ orderId: v.string() }),
  key: (invoice) => invoice.orderId,
});
/** A Date may cross the wire if the schema parses it back. */
export const Shipped = defineEvent({ type: "shop.Shipped", schema: z.object({ at: z.coerce.date() }) });

declare const pool: Pool;
declare const db: NodePgDatabase;
declare const sender: Sender;
export const store = postgresStore({ pool });
export const drizzleStore = postgresStore({ pool, transactions: drizzle(db) });
/** Drizzle on any PostgreSQL driver, and a narrower handle of it. */
declare const anyDb: PgDatabase<PgQueryResultHKT>;
declare const pglite: PgliteDatabase;
declare const part: Pick<NodePgDatabase, "transaction">;
postgresStore({ pool, transactions: drizzle(pglite) });
postgresStore({ pool, transactions: drizzle(part) });
postgresStore({ pool, transactions: drizzle(anyDb) });
export const outbox = createOutbox(store, { source: "/orders" });
export const drizzleOutbox = createOutbox(drizzleStore, { source: "/orders" });
export const publisher = createPublisher(sender, { source: "/orders" });

export const Uploaded = defineEvent({
  type: "shop.Uploaded",
  schema: z.instanceof(Uint8Array),
  contentType: "application/octet-stream",
});

export async function place(client: PoolClient, single: Client): Promise<void> {
  await outbox.in(single).publish(OrderPlaced, { orderId: "1", total: 2 });
  await outbox.in(client).publish(OrderPlaced, { orderId: "1", total: 2 });
  await outbox.in(client).publish(OrderPlaced, { orderId: "1", total: 2 }, { deliverAt: new Date(), scheduleKey: "1" });
  await outbox.in(client).cancel(OrderPlaced, "1");
  await outbox
    .in(client)
    .publishAll([OrderPlaced.message({ orderId: "1", total: 2 }), InvoiceIssued.message({ orderId: "1" })]);
  await db.transaction(async (tx) => {
    await drizzleOutbox.in(tx).publish(OrderPlaced, { orderId: "1", total: 2, note: "by Drizzle" });
  });
}

/** Options that only a Postgres store has, also through a relay and through messaging. */
const onlyPostgres = createMessaging({ service: "orders", store: drizzleStore, sender, outbox: true, relayOptions: { onSent: "keep", retentionMs: 1, partitions: false } });
createRelay(store, sender, { onSent: "keep", retentionMs: 1, partitions: false });
outboxReceiver(drizzleStore, { onSent: "keep", retentionMs: 1, partitions: false });
export async function operate(): Promise<number> {
  for (const { problems } of [await store.health({ tableBytes: 1 }), await onlyPostgres.health({ transactionAgeMs: 1 })]) {
    for (const problem of problems) {
      if (problem.code === "vacuum-held-back") return problem.transactions;
      if (problem.code === "unreadable") problem.sqlState satisfies string;
      if (problem.code === "parked") problem.count satisfies number;
    }
  }
  const { removed, partitionsDropped } = await store.purge({ retentionMs: 1, partitions: false });
  return removed + partitionsDropped;
}
/** A store of any kind. */
export const anyRelay = (any: Store<ClientBase>) => createRelay(any, sender, { onSent: "keep", retentionMs: 1 });

createSchedule(drizzleOutbox, {
  daily: { cron: "0 6 * * *", message: (tick) => OrderPlaced.message({ orderId: tick.toISOString(), total: 0 }) },
  often: { everyMs: 1000, message: InvoiceIssued.message({ orderId: "1" }), missed: "all", maxMissed: 5 },
});

export const router = createRouter("billing")
  .use(retry())
  .use(timeout(1000))
  .use(deadline())
  .use(recover(() => {}))
  .use(correlation())
  .use(transaction(store, { isolation: "serializable" }))
  .use(inbox(store))
  .use(outboxOutputs(outbox))
  .on(OrderPlaced, async (order, { tx, message }) => {
    const note: string = order.note;
    await tx.query("select $1, $2, $3", [order.orderId, message.id, note]);
    if (order.total === 0) return;
    return [InvoiceIssued.message({ orderId: order.orderId })];
  })
  .on(InvoiceIssued, (invoice) => {
    invoice.orderId.toUpperCase();
  });

createRouter("with Drizzle")
  .use(transaction(drizzleStore))
  .use(inbox(drizzleStore))
  .use(outboxOutputs(drizzleOutbox))
  .on(OrderPlaced, async (_order, { tx }) => {
    // biome-ignore lint/suspicious/noExplicitAny: only Drizzle's own transaction type matters here.
    const own: PgTransaction<any, any, any> = tx;
    own.rollback satisfies () => never;
  });

declare function chargeCard(orderId: string): Promise<void>;
createRouter("passes a promise on").on(OrderPlaced, (order) => chargeCard(order.orderId));

createRouter("straight to the broker")
  .use(publishOutputs(publisher))
  .use(transaction(store))
  .on(OrderPlaced, async (order) => [InvoiceIssued.message({ orderId: order.orderId })]);

createRouter("forwarding", { ack: "forward" })
  .use(publishOutputs(publisher))
  .on(OrderPlaced, (order) => [InvoiceIssued.message({ orderId: order.orderId })]);

declare const options: RouterOptions;
createRouter("with options from elsewhere", options).on(OrderPlaced, async () => {});

createRouter("recovering")
  .use(publishOutputs(publisher))
  .use(recover(() => [InvoiceIssued.message({ orderId: "1" })]))
  .on(OrderPlaced, async () => {});

createRouter("by hand", { ack: "manual" }).on(OrderPlaced, async (_order, { delivery }) => {
  await delivery.ack();
});

export const tenant = defineMiddleware({
  name: "tenant",
  needs: ["tx"],
  adds: ["tenant"],
  async run(context: BaseContext & InTransaction<ClientBase>, next: Next<{ tenant: string }>) {
    await context.tx.query("select 1");
    return next({ tenant: context.message.source });
  },
});
createRouter("tenants")
  .use(transaction(store))
  .use(tenant)
  .on(OrderPlaced, async (_order, context) => {
    context.tenant.toUpperCase();
    await context.tx.query("select 1");
  });

/** A module that requires a transaction and nothing else. */
export function register(handlers: Handlers<BaseContext & InTransaction<ClientBase>>): void {
  handlers.on(InvoiceIssued, async (invoice, { tx }) => {
    await tx.query("select $1", [invoice.orderId]);
  });
}
register(createRouter("modules").use(transaction(store)));

export declare const otherStore: Store<{ readonly other: true }>;

declare const receiver: Receiver;
/** One messaging for each pair of switches, and one whose switches are known only at run time. */
export const messaging = {
  both: createMessaging({ service: "orders", store, sender, receiver, outbox: true, inbox: true }),
  outbox: createMessaging({ service: "orders", store, sender, outbox: true }),
  inbox: createMessaging({ service: "orders", store, sender, inbox: "durable" }),
  neither: createMessaging({ service: "orders", store, sender, receiver: () => receiver }),
  storeless: createMessaging({ service: "orders", sender, receiver }),
  byEnv: createMessaging({ service: "orders", ...messagingOptionsFromEnv(process.env), store, sender, receiver }),
};
export const drizzleMessaging = createMessaging({ service: "orders", store: drizzleStore, sender, outbox: true });

messaging.both.consumer("billing").on(OrderPlaced, async (order, { tx }) => {
  await tx.query("select 1");
  return [InvoiceIssued.message({ orderId: order.orderId })];
});
messaging.byEnv.consumer("billing").on(OrderPlaced, async (order, { tx }) => {
  await tx.query("select 1");
  return [InvoiceIssued.message({ orderId: order.orderId })];
});
messaging.neither.consumer("billing").on(OrderPlaced, async (order, { tx }) => {
  await tx.query("select 1");
  return [InvoiceIssued.message({ orderId: order.orderId })];
});
messaging.inbox.consumer("billing").on(OrderPlaced, async (_order, { tx }) => {
  await tx.query("select 1");
});
messaging.storeless.consumer().on(OrderPlaced, (order) => [InvoiceIssued.message({ orderId: order.orderId })]);
messaging.storeless.consumer("by hand", { ack: "manual" }).on(OrderPlaced, async (_order, { delivery }) => delivery.ack());
messaging.neither.consumer("forwarding", { ack: "forward" }).on(OrderPlaced, async () => []);
messaging.inbox.consumer("without", { inbox: false }).on(OrderPlaced, (order) => [InvoiceIssued.message({ orderId: order.orderId })]);
messaging.outbox.consumer("with", { inbox: true, concurrency: 1, isolation: "serializable", backoff: (attempt) => attempt }).on(OrderPlaced, (order) => [InvoiceIssued.message({ orderId: order.orderId })]);

messaging.both
  .consumer("middleware", { outside: (outer) => outer.use(retry()).use(timeout(1000)) })
  .use(tenant)
  .on(OrderPlaced, async (_order, { tx, signal, tenant: whose }) => {
    await tx.query("select $1", [whose.toUpperCase()]);
    signal.throwIfAborted();
    return [];
  });
drizzleMessaging.consumer("with Drizzle").on(OrderPlaced, async (_order, { tx }) => {
  tx.rollback satisfies () => never;
});

export async function publish(given: Messaging<Store<ClientBase>>, client: PoolClient): Promise<void> {
  const publishers: Publisher[] = [given.publisher, given.in(client)];
  for (const each of publishers) await each.publish(OrderPlaced, { orderId: "1", total: 2 });
  given.relay?.start();
}
export async function publishWithAll(client: PoolClient): Promise<void> {
  const { both, outbox: first, inbox: second, neither, byEnv } = messaging;
  for (const each of [both, first, second, neither, byEnv]) await publish(each, client);
  await publish(neither, client);
  await messaging.both.relay.run();
  await db.transaction(async (tx) => {
    await drizzleMessaging.in(tx).publish(OrderPlaced, { orderId: "1", total: 2 });
  });
}
/** An optional store: handlers get no transaction. */
declare const maybeStore: typeof store | undefined;
createMessaging({ service: "orders", store: maybeStore, sender, outbox: maybeStore !== undefined }).consumer().on(OrderPlaced, async () => {});

/** The event's own codecs may carry what JSON cannot. */
declare const pairs: Codec<{ at: Date; n: bigint }>;
export const Paired = defineEvent({ type: "shop.Paired", schema: z.object({ at: z.date(), n: z.bigint() }), codecs: [pairs] });

/** Generated registrations take the types of the router that they are given, singly or nested. */
declare const onOrderPlaced: Registration<typeof OrderPlaced>;
declare const onPaired: Registration<typeof Paired>;
const withTransaction = createRouter("b").use(transaction(store)).use(outboxOutputs(outbox));
onOrderPlaced(withTransaction, async (order, { tx, attempt }) => {
  await tx.query("select $1, $2", [order.total.toFixed(2), attempt]);
  return [InvoiceIssued.message({ orderId: order.orderId })];
});
const registered = onPaired(onOrderPlaced(withTransaction, async () => {}), ({ at, n }) => void [at.getTime(), n * 2n]);
registered.on(Uploaded, async () => {});
onOrderPlaced(createRouter("b", { ack: "manual" }), async (_order, { delivery }) => delivery.ack());
onOrderPlaced(messaging.both.consumer("billing"), async (_order, { tx }) => void (await tx.query("select 1")));

/** Upcasts: an old version is typed if its event is given, and unknown if only its name is. */
export const OrderPlacedV2 = defineEvent({
  type: "shop.orders.v2.OrderPlaced",
  schema: z.object({ orderId: z.string(), cents: z.number(), currency: z.enum(["EUR", "USD"]), lines: z.array(z.string()) }),
  upcast: [
    upcastFrom(OrderPlaced, ({ orderId, total }) => ({ orderId, cents: total * 100, currency: "EUR", lines: [] })),
    upcastFrom("shop.orders.v0.OrderPlaced", (old) => ({ orderId: String(old satisfies unknown), cents: 0, currency: "USD", lines: ["a"] })),
  ],
});
export const OrderPlacedV3 = defineEvent({
  type: "shop.orders.v3.OrderPlaced",
  schema: z.object({ orderId: z.string() }),
  upcast: [upcastFrom(OrderPlacedV2, ({ orderId, cents }) => ({ orderId: orderId + cents.toFixed() }))],
});
createRouter("b").on(OrderPlacedV3, async ({ orderId }) => void orderId.length).on(InvoiceIssued, async () => {});
createRouter("b").on(OrderPlaced, async () => {}).on(InvoiceIssued, async () => {});
const Issued = withUpcast(InvoiceIssued, [upcastFrom(OrderPlacedV2, ({ orderId, cents }) => ({ orderId: orderId + cents.toFixed() }))]);
createRouter("b").on(Issued, async ({ orderId }) => void orderId.length).on(Uploaded, async () => {});

/** The same with generated code, as in the protobuf guide. */
export const BookCreated = withUpcast(v2.BookCreated, [
  upcastFrom(v1.BookCreated, ({ id, author, priceCents }) => ({ id, authors: [author], priceCents })),
]);
v1.onBookRemoved(createRouter("b").on(BookCreated, ({ authors }) => void authors.length), ({ id }) => void id.length);

/** Catalogs of definitions and of lists of definitions. */
export const catalog = defineCatalog([OrderPlacedV2, { events: [InvoiceIssued, OrderPlaced] as const }]);
createRouter("b").on(catalog.byType["shop.orders.v2.OrderPlaced"], async ({ cents }) => void cents.toFixed());
export const published: Promise<Published> = catalog.publisher(publisher).publish("shop.orders.v1.OrderPlaced", { orderId: "1", total: 2 });
catalog.asyncApi({ info: { title: "Shop", version: "1" }, receives: ["shop.orders.v1.OrderPlaced"] });
