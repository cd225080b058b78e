// Every `error:` comment names a text that the compiler must print for the line below it; no other line may fail.
import { testMessaging } from "@postbox/testkit/app";
import type { MySqlRemoteDatabase } from "drizzle-orm/mysql-proxy";
import type { NodePgDatabase } from "drizzle-orm/node-postgres";
import type { BaseSQLiteDatabase } from "drizzle-orm/sqlite-core";
import type { Pool, PoolClient } from "pg";
import { type Codec, createMessaging, createOutbox, createRelay, createRouter, defineEvent, inbox, outboxOutputs, outboxReceiver, publishOutputs, type Registration, recover, retry, type Sender, timeout, transaction, upcastFrom, withUpcast } from "postbox";
import { defineCatalog } from "postbox/catalog";
import { drizzle } from "postbox/drizzle";
import { type MemoryStore, memoryBroker } from "postbox/memory";
import { type MysqlPool, mysqlStore } from "postbox/mysql";
import { postgresStore } from "postbox/postgres";
import { createSchedule } from "postbox/schedule";
import type { TransactionLibrary } from "postbox/store";
import { z } from "zod";
import * as v1 from "../../examples/04-books/src/gen/example/books/v1/books_postbox.js";
import * as v2 from "../../examples/04-books/src/gen/example/books/v2/books_postbox.js";
import {
  BookCreated,
  catalog,
  drizzleMessaging,
  drizzleOutbox,
  drizzleStore,
  InvoiceIssued,
  messaging,
  OrderPlaced,
  OrderPlacedV2,
  OrderPlacedV3,
  otherStore,
  outbox,
  publisher,
  register,
  router,
  store,
  tenant,
} from "./right-use.js";

declare const pool: Pool;
declare const client: PoolClient;
declare const db: NodePgDatabase;
declare const memory: MemoryStore;
declare const mysql: MySqlRemoteDatabase;
declare const sqlite: BaseSQLiteDatabase<"sync", unknown>;
declare const mysqlPool: MysqlPool;
declare const onMysql: TransactionLibrary<PoolClient, "mysql">;
declare const onAny: TransactionLibrary<PoolClient>;
declare const sender: Sender;
declare const dates: Codec<{ at: Date }>;
declare const onOrderPlaced: Registration<typeof OrderPlaced>;

// error: inbox() needs 'tx' in the context: .use(transaction(store)) before it
createRouter("b").use(inbox(store));
// error: outboxOutputs() needs 'tx' in the context: .use(transaction(store)) before it
createRouter("b").use(outboxOutputs(outbox));
// error: retry() cannot stand inside transaction(store): .use(retry()) before it
createRouter("b").use(transaction(store)).use(retry());
// error: timeout() cannot stand inside transaction(store): .use(timeout()) before it
createRouter("b").use(transaction(store)).use(timeout(5));
// error: recover() cannot stand inside transaction(store): .use(recover()) before it
createRouter("b").use(transaction(store)).use(recover(() => {}));
// error: publishOutputs() cannot stand inside transaction(store): .use(publishOutputs()) before it
createRouter("b").use(transaction(store)).use(publishOutputs(publisher));
// error: transaction() is there already: once is enough, remove this one
createRouter("b").use(transaction(store)).use(transaction(store));
// error: inbox() cannot stand inside publishOutputs(publisher), which would lose messages in a crash after the commit: use outboxOutputs(outbox) instead
createRouter("b").use(publishOutputs(publisher)).use(transaction(store)).use(inbox(store));
// error: transaction() cannot stand behind ack: "manual", whose handler could ack before the commit: choose another ack strategy
createRouter("b", { ack: "manual" }).use(transaction(store));
// error: recover() needs 'published' in the context: .use(publishOutputs(publisher)) before it
createRouter("b").use(recover(() => [InvoiceIssued.message({ orderId: "1" })]));
// error: inbox() works with another store's 'tx' than the one in this context: give both the same store
createRouter("b").use(transaction(store)).use(inbox(otherStore));
// error: inbox() works with another store's 'tx' than the one in this context
createRouter("b").use(transaction(store)).use(inbox(drizzleStore));
// error: outboxOutputs() works with another store's 'tx' than the one in this context
createRouter("b").use(transaction(store)).use(outboxOutputs(drizzleOutbox));
// error: what this handler returns is not published: .use(outboxOutputs(outbox)) or .use(publishOutputs(publisher)) before .on(...)
createRouter("b").on(OrderPlaced, async (o) => [InvoiceIssued.message({ orderId: o.orderId })]);
// error: what this handler returns is not published
createRouter("b").on(OrderPlaced, (o) => [InvoiceIssued.message({ orderId: o.orderId })]);
// error: ack: "forward" needs a publisher: .use(publishOutputs(publisher)) before .on(...)
createRouter("b", { ack: "forward" }).on(OrderPlaced, async () => {});
// error: shop.orders.v1.OrderPlaced has a handler already; do both things in one handler
router.on(OrderPlaced, async () => {});
// error: Property 'use' does not exist
router.use(retry());
// error: Property 'tx' does not exist
createRouter("b").on(OrderPlaced, async (_order, { tx }) => void tx);
// error: tenant() needs 'tx' in the context: .use(transaction(store)) before it
createRouter("b").use(tenant);
// error: is not assignable to parameter of type 'Handlers<BaseContext & InTransaction<ClientBase>
register(createRouter("b"));
// error: Type 'number' is not assignable to type 'string'
outbox.in(client).publish(OrderPlaced, { orderId: 1, total: 2 });
// error: Property 'deliverAt' is missing
outbox.in(client).publish(OrderPlaced, { orderId: "1", total: 2 }, { scheduleKey: "1" });
// error: is not assignable to type 'undefined'
createSchedule(outbox, { daily: { cron: "0 6 * * *", everyMs: 1000, message: InvoiceIssued.message({ orderId: "1" }) } });
// error: Property 'cron' is missing
createSchedule(outbox, { daily: { timeZone: "UTC", message: InvoiceIssued.message({ orderId: "1" }) } });
// error: is not assignable to type
createSchedule(outbox, { daily: { everyMs: 1000, maxMissed: 5, message: InvoiceIssued.message({ orderId: "1" }) } });
// error: is missing the following properties from type 'Draft<string>'
createSchedule(outbox, { daily: { everyMs: 1000, message: () => ({ orderId: "1" }) } });
// error: Property 'cancel' does not exist
messaging.neither.publisher.cancel(OrderPlaced, "1");
// error: is missing the following properties from type 'ClientBase'
outbox.in(pool);
// error: is missing the following properties from type 'PgTransaction<
drizzleOutbox.in(db);
// error: is missing the following properties from type 'PgTransaction<
drizzleOutbox.in(client);
// error: these are transactions on mysql, and postgresStore needs transactions on postgres: give it a library on the same PostgreSQL as its pool
postgresStore({ pool, transactions: onMysql });
// error: these are transactions on sqlite, and postgresStore needs transactions on postgres
postgresStore({ pool, transactions: onAny });
// error: these are transactions on mysql, and postgresStore needs transactions on postgres
postgresStore({ pool, transactions: drizzle(mysql) });
// error: these are transactions on postgres, and mysqlStore needs transactions on mysql: give it a library on the same MySQL as its pool
mysqlStore({ pool: mysqlPool, transactions: drizzle(db) });
// error: this database has the dialect sqlite, and Postbox serves Drizzle on postgres and mysql only: use one of these
drizzle(sqlite);
// error: Property 'transaction' is missing in type 'Pool'
drizzle(pool);
// error: 'partitions' does not exist in type
createRelay(memory, sender, { onSent: "keep", retentionMs: 1, partitions: false });
// error: 'partitions' does not exist in type
outboxReceiver(memory, { onSent: "keep", retentionMs: 1, partitions: false });
// error: 'partitions' does not exist in type
createMessaging({ service: "orders", store: memory, sender, outbox: true, relayOptions: { partitions: false } });
// error: 'partitions' does not exist in type
memory.purge({ retentionMs: 1, partitions: false });
// error: 'tableBytes' does not exist in type
memory.health({ tableBytes: 1 });
// error: and '"vacuum-held-back"' have no overlap
memory.health().then(({ problems }) => problems.some(({ code }) => code === "vacuum-held-back"));
// error: 'partition' does not exist in type
createRelay(store, sender, { onSent: "keep", retentionMs: 1, partition: false });
// error: this schema does not survive the wire: what it returns must be valid input again after JSON
defineEvent({ type: "a.B", schema: z.object({ at: z.date() }) });
// error: this schema does not survive the wire
defineEvent({ type: "a.B", schema: z.object({ at: z.string().transform(Number) }) });
// error: this schema does not survive the wire
defineEvent({ type: "a.B", schema: z.object({ n: z.bigint() }) });
// error: this schema does not survive the wire
defineEvent({ type: "a.B", schema: z.object({ bytes: z.instanceof(Uint8Array) }) });
// error: this schema does not survive the wire
defineEvent({ type: "a.B", schema: z.map(z.string(), z.string()) });
// error: 'pollInterval' does not exist
createOutbox(store, { source: "/orders", pollInterval: 1 });
// error: Property 'source' is missing
createOutbox(store, {});
// error: Expected 2-3 arguments, but got 1
createRelay(store).run();
// error: Object literal may only specify known properties, and 'maxAttempts' does not exist in type 'Sender'
createRelay(store, { maxAttempts: 1 }).start();
// error: 'batchSize' does not exist in type 'OutboxReceiverOptions &
outboxReceiver(store, { batchSize: 1 });
// error: is missing the following properties from type 'Sender'
createRelay(store, memoryBroker());
// error: is missing the following properties from type 'ClientBase'
outbox.collecting(pool, async (box) => box.publishAll([]));
// error: what this handler returns is not published: the inbox is on and the outbox is off, so a crash after the commit would lose them: turn the outbox on
messaging.inbox.consumer("b").on(OrderPlaced, async (o) => [InvoiceIssued.message({ orderId: o.orderId })]);
// error: what this handler returns is not published: the inbox is on and the outbox is off
messaging.neither.consumer("b", { inbox: true }).on(OrderPlaced, async (o) => [InvoiceIssued.message({ orderId: o.orderId })]);
// error: Property 'store' is missing
createMessaging({ service: "orders", sender, outbox: true });
// error: Property 'store' is missing
createMessaging({ service: "orders", sender, inbox: "durable" });
// error: Property 'service' is missing
createMessaging({ sender });
// error: 'outBox' does not exist
createMessaging({ service: "orders", sender, outBox: false });
// error: the inbox needs a store: give createMessaging one
messaging.storeless.consumer("b", { inbox: true });
// error: with a store the router acks after the commit, so the handler cannot
messaging.neither.consumer("b", { ack: "manual" });
// error: ack: "forward" needs a publisher
messaging.outbox.consumer("b", { ack: "forward" }).on(OrderPlaced, async () => {});
// error: Property 'tx' does not exist
messaging.storeless.consumer("b").on(OrderPlaced, async (_order, { tx }) => void tx);
// error: timeout() cannot stand inside transaction(store): .use(timeout()) before it
messaging.both.consumer("b").use(timeout(5));
// error: inbox() cannot stand inside publishOutputs(publisher)
messaging.neither.consumer("b").use(inbox(store));
// error: is possibly 'undefined'
messaging.byEnv.relay.start();
// error: 'messaging.inbox.relay' is possibly 'undefined'
messaging.inbox.relay.start();
// error: is missing the following properties from type 'ClientBase'
messaging.both.in(pool);
// error: is missing the following properties from type 'PgTransaction<
drizzleMessaging.in(client);
// error: is not assignable to parameter of type 'never'
messaging.storeless.in(client);
// error: 'conurrency' does not exist
messaging.both.consumer("b", { conurrency: 1 });
// error: the codecs of this event do not carry this schema's data
defineEvent({ type: "a.B", schema: z.object({ at: z.bigint() }), codecs: [dates] });
// error: the codecs of this event do not carry this schema's data
defineEvent({ type: "a.B", schema: z.object({ at: z.date(), n: z.number() }), codecs: [dates] });
// error: this schema does not survive the wire
defineEvent({ type: "a.B", schema: z.object({ at: z.date() }), codecs: [] });
// error: shop.orders.v1.OrderPlaced has a handler already; do both things in one handler
onOrderPlaced(createRouter("b").on(OrderPlaced, async () => {}), async () => {});
// error: shop.orders.v1.OrderPlaced has a handler already; do both things in one handler
onOrderPlaced(onOrderPlaced(createRouter("b"), async () => {}), async () => {});
// error: ack: "forward" needs a publisher: .use(publishOutputs(publisher)) before .on(...)
onOrderPlaced(createRouter("b", { ack: "forward" }), async () => {});
// error: what this handler returns is not published: .use(outboxOutputs(outbox)) or .use(publishOutputs(publisher)) before .on(...)
onOrderPlaced(createRouter("b"), async () => [InvoiceIssued.message({ orderId: "1" })]);
// error: Property 'tx' does not exist
onOrderPlaced(createRouter("b"), async (_order, { tx }) => void tx);
// error: Property 'nonsense' does not exist
onOrderPlaced(createRouter("b"), async (order) => void order.nonsense);
// error: shop.orders.v1.OrderPlaced has a handler already, and shop.orders.v2.OrderPlaced upcasts from it; keep one of them
createRouter("b").on(OrderPlaced, async () => {}).on(OrderPlacedV2, async () => {});
// error: shop.orders.v2.OrderPlaced takes shop.orders.v1.OrderPlaced already, by its upcaster; keep one of them
createRouter("b").on(OrderPlacedV2, async () => {}).on(OrderPlaced, async () => {});
// error: shop.orders.v1.OrderPlaced has a handler already, and shop.orders.v3.OrderPlaced upcasts from it; keep one of them
onOrderPlaced(createRouter("b"), async () => {}).on(OrderPlacedV3, async () => {});
// error: shop.orders.v3.OrderPlaced takes shop.orders.v1.OrderPlaced already, by its upcaster; keep one of them
onOrderPlaced(createRouter("b").on(OrderPlacedV3, async () => {}), async () => {});
// error: shop.orders.v1.OrderPlaced has a handler already, and shop.orders.v3.OrderPlaced upcasts from it; keep one of them
createRouter("b").on(withUpcast(InvoiceIssued, [upcastFrom(OrderPlaced, () => ({ orderId: "1" }))]), async () => {}).on(OrderPlacedV3, async () => {});
// error: shop.billing.v1.InvoiceIssued takes shop.orders.v1.OrderPlaced already, by its upcaster; keep one of them
createRouter("b").on(withUpcast(InvoiceIssued, [upcastFrom(OrderPlaced, () => ({ orderId: "1" }))]), async () => {}).on(OrderPlaced, async () => {});
// error: example.books.v2.BookCreated takes example.books.v1.BookCreated already, by its upcaster; keep one of them
createRouter("b").on(BookCreated, () => {}).on(v1.BookCreated, () => {});
// error: example.books.v2.BookCreated takes example.books.v1.BookCreated already, by its upcaster; keep one of them
v1.onBookCreated(createRouter("b").on(BookCreated, () => {}), () => {});
// error: example.books.v1.BookCreated has a handler already, and example.books.v2.BookCreated upcasts from it; keep one of them
v1.onBookCreated(createRouter("b"), () => {}).on(BookCreated, () => {});
// error: Type '{ id: string; priceCents: 5; }' is not assignable to type 'MessageInit<BookCreatedEvent>'
withUpcast(v2.BookCreated, [upcastFrom(v1.BookCreated, ({ id }) => ({ id, priceCents: 5 }))]);
// error: Type 'number' is not assignable to type 'string'
withUpcast(InvoiceIssued, [upcastFrom(OrderPlaced, () => ({ orderId: 1 }))]);
// error: Type 'number' is not assignable to type 'string'
defineEvent({ type: "a.C", schema: z.object({ a: z.string() }), upcast: [upcastFrom(OrderPlaced, ({ total }) => ({ a: total }))] });
// error: an upcaster returns at once: it must need nothing to wait for
defineEvent({ type: "a.C", schema: z.object({ a: z.string() }), upcast: [upcastFrom("a.B", async () => ({ a: "a" }))] });
// error: Property 'nonsense' does not exist
upcastFrom(OrderPlaced, (old) => old.nonsense);
// error: 'old' is of type 'unknown'
upcastFrom("a.B", (old) => old.nonsense);
// error: is not assignable to parameter of type
catalog.publisher(publisher).publish("shop.orders.v9.OrderPlaced", {});
// error: Property 'total' is missing
catalog.publisher(publisher).publish("shop.orders.v1.OrderPlaced", { orderId: "1" });
// error: Property 'shop.orders.v9.OrderPlaced' does not exist
catalog.byType["shop.orders.v9.OrderPlaced"];
// error: Type '"shop.orders.v9.OrderPlaced"' is not assignable to type
catalog.asyncApi({ info: { title: "Shop", version: "1" }, sends: ["shop.orders.v9.OrderPlaced"] });
// error: Property 'info' is missing
catalog.asyncApi({});
// error: Type 'string' is not assignable to type 'CatalogEntry'
defineCatalog(["shop.orders.v1.OrderPlaced"]);
// error: 'deprecated' does not exist in type 'EventDocs'
defineEvent({ type: "a.C", schema: z.object({ a: z.string() }), docs: { deprecated: true } });
// error: Property 'clock' does not exist on type 'TestMessaging<
testMessaging({ store }).clock;
// error: 'sender' does not exist in type
testMessaging({ sender: memoryBroker().sender() });
// error: Property 'nonsense' does not exist on type '{ orderId: string;
testMessaging().published(OrderPlaced).then(([order]) => order?.nonsense);
// error: Property 'total' is missing
testMessaging().deliver(OrderPlaced, { orderId: "1" });
