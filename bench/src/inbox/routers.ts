import type { ClientBase } from "pg";
import {
  createOutbox,
  createRouter,
  durableInbox,
  inbox,
  outboxOutputs,
  type RunsReceiver,
  type Store,
  type Telemetry,
  transaction,
} from "postbox";
import { businessInsert } from "../business.js";
import { Placed } from "../outbox/placed.js";

/** The name that all routers have: what one has handled, the others know. */
export const consumer = "bench";
/** How many are handled at once, by hand as well. */
export const concurrency = 10;

export type RouterKind = (store: Store<ClientBase>, telemetry: Telemetry) => RunsReceiver;

const insert = (_: unknown, { tx }: { readonly tx: ClientBase }) => businessInsert(tx);
const routerFor = (telemetry: Telemetry) => createRouter(consumer, { concurrency, telemetry });

/** All of them do the same in the end: one business insert for each message. */
export const routers = {
  /** A transaction, and nothing that remembers. */
  bare: (store, telemetry) => routerFor(telemetry).use(transaction(store)).on(Placed, insert),
  inbox: (store, telemetry) => routerFor(telemetry).use(transaction(store)).use(inbox(store)).on(Placed, insert),
  /** … and one more message for each, through the outbox. */
  full: (store, telemetry) =>
    routerFor(telemetry)
      .use(transaction(store))
      .use(inbox(store))
      .use(outboxOutputs(createOutbox(store, { source: "/bench" })))
      .on(Placed, async (order, context) => {
        await insert(order, context);
        return [Placed.message(order)];
      }),
  durable: (store, telemetry) =>
    routerFor(telemetry).use(transaction(store)).use(durableInbox(store)).on(Placed, insert),
} as const satisfies Readonly<Record<string, RouterKind>>;
