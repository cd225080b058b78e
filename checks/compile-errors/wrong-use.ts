// Every `error:` comment names a text that the compiler must print for the line below it; no other line may fail.
import type { NodePgDatabase } from "drizzle-orm/node-postgres";
import type { Pool, PoolClient } from "pg";
import {
  createOutbox,
  createRelay,
  createRouter,
  defineEvent,
  inbox,
  outboxOutputs,
  publishOutputs,
  recover,
  retry,
  timeout,
  transaction,
} from "postbox";
import { memoryBroker } from "postbox/memory";
import { z } from "zod";
import {
  drizzleOutbox,
  drizzleStore,
  InvoiceIssued,
  OrderPlaced,
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
// error: transaction() cannot stand inside transaction(store)
createRouter("b").use(transaction(store)).use(transaction(store));
// error: inbox() cannot stand inside publishOutputs(publisher), which would lose messages in a crash after the commit: use outboxOutputs(outbox) instead
createRouter("b").use(publishOutputs(publisher)).use(transaction(store)).use(inbox(store));
// error: transaction() cannot stand behind ack: "manual", whose handler could ack before the commit: choose another ack strategy
createRouter("b", { ack: "manual" }).use(transaction(store));
// error: recover() needs 'outputs' in the context: .use(outboxOutputs(outbox)) before it
createRouter("b").use(recover(() => [InvoiceIssued.message({ orderId: "1" })]));
// error: inbox() works with another store's 'tx' than the one in this context: give both the same store
createRouter("b").use(transaction(store)).use(inbox(otherStore));
// error: inbox() works with another store's 'tx' than the one in this context
createRouter("b").use(transaction(store)).use(inbox(drizzleStore));
// error: outboxOutputs() works with another store's 'tx' than the one in this context
createRouter("b").use(transaction(store)).use(outboxOutputs(drizzleOutbox));
// error: nobody publishes what this handler returns: .use(outboxOutputs(outbox)) or .use(publishOutputs(publisher)) before .on(...)
createRouter("b").on(OrderPlaced, async (o) => [InvoiceIssued.message({ orderId: o.orderId })]);
// error: nobody publishes what this handler returns
createRouter("b").on(OrderPlaced, (o) => [InvoiceIssued.message({ orderId: o.orderId })]);
// error: ack: "forward" needs somebody to publish: .use(publishOutputs(publisher)) before .on(...)
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
// error: is missing the following properties from type 'ClientBase'
outbox.in(pool);
// error: is missing the following properties from type 'PgTransaction<
drizzleOutbox.in(db);
// error: is missing the following properties from type 'PgTransaction<
drizzleOutbox.in(client);
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
// error: Property 'run' does not exist on type 'RelaySource'
createRelay(store).run();
// error: Property 'start' does not exist on type 'RelaySource'
createRelay(store, { maxAttempts: 1 }).start();
// error: No overload matches this call
createRelay(store, memoryBroker());
// error: is missing the following properties from type 'ClientBase'
outbox.collecting(pool, async (box) => box.publishAll([]));
