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

/** The consumer name of all routers, so that they share what the inbox remembers. */
export const consumer = "bench";
/** How many messages are handled at once, also by hand. */
export const concurrency = 10;

export type RouterKind = (store: Store<ClientBase>, telemetry: Telemetry) => RunsReceiver;

const insert = (_: unknown, { tx }: { readonly tx: ClientBase }) => businessInsert(tx);
const routerFor = (telemetry: Telemetry) => createRouter(consumer, { concurrency, telemetry });

/** Routers that all end in the same handler: one business insert per message. */
export const routers = {
  /** A transaction without an inbox. */
  bare: (store, telemetry) => routerFor(telemetry).use(transaction(store)).on(Placed, insert),
  inbox: (store, telemetry) => routerFor(telemetry).use(transaction(store)).use(inbox(store)).on(Placed, insert),
  /** An inbox, and one more message per handled one through the outbox. */
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
