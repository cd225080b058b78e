import {
  type Codec,
  constant,
  createOutbox,
  createPublisher,
  createRouter,
  defineEvent,
  durableInbox,
  type InboxOptions,
  inbox,
  inboxOf,
  outboxOutputs,
  type Receiver,
  type RouterOptions,
  type RunsReceiver,
  type StandardSchema,
  type Store,
  transaction,
} from "postbox";
import { memoryBroker } from "postbox/memory";
import { defineMiddleware, type Middleware, type Next } from "postbox/middleware";
import { onTestFinished } from "vitest";
import type { StoreHarness } from "../store-suite/store-harness.js";
import { type TelemetryLog, telemetryLog } from "../telemetry-log.js";

export type InboxMode = "inbox" | "durableInbox";

interface Order {
  readonly order: string;
}
interface KeyedOrder extends Order {
  readonly key: string;
}
function trusted<T>(): StandardSchema<T> {
  return { "~standard": { version: 1, vendor: "testkit", validate: (value) => ({ value: value as T }) } };
}
const schema = trusted<Order>();
export const Placed = defineEvent({ type: "inbox.Placed", schema });
export const Keyed = defineEvent({ type: "inbox.Keyed", schema: trusted<KeyedOrder>(), key: ({ key }) => key });
const Invoiced = defineEvent({ type: "inbox.Invoiced", schema });
/** Only consumers with `handlesUnknown` have a handler for it. */
export const Unknown = defineEvent({ type: "inbox.Unknown", schema });

/** An event with arbitrary bytes, whatever their content type declares. */
export function anything(type: string) {
  const contentTypes = ["application/octet-stream", "application/json", "application/cloudevents+json", "text/plain"];
  const asTheyAre = (contentType: string): Codec<Uint8Array> => ({
    contentType,
    encode: (bytes) => bytes,
    decode: (bytes) => bytes,
  });
  return defineEvent({ type, schema: trusted<Uint8Array>(), codecs: contentTypes.map(asTheyAre) });
}

export const consumer = "billing";
export const box = inboxOf(consumer);

/** A broker with the consumer's queue, and a publisher to it. */
export function orders() {
  const broker = memoryBroker();
  const bind = (name: string) => broker.bind(name, [Placed, Keyed, Unknown]);
  bind(consumer);
  const publisher = createPublisher(broker.sender(), { source: "/orders" });
  return { broker, publisher, bind };
}

interface Handling<Tx> {
  readonly order: string;
  readonly tx: Tx;
  readonly attempt: number;
  readonly signal: AbortSignal;
}

export interface ConsumingOptions<Tx> extends RouterOptions {
  readonly mode: InboxMode;
  readonly store?: Store<Tx>;
  readonly name?: string;
  readonly options?: InboxOptions;
  /** A middleware outside of the transaction. Defaults to none. */
  readonly outside?: Middleware<string>;
  /** Whether this instance also handles `Unknown`. Defaults to false. */
  readonly handlesUnknown?: boolean;
  /** Called after the effect was written. Defaults to nothing. */
  handle?(handling: Handling<Tx>): Promise<void> | void;
}

export interface Consuming {
  readonly router: RunsReceiver;
  readonly log: TelemetryLog;
  /** The orders whose handlers have begun. */
  readonly begun: readonly string[];
  start(receiver: Receiver): void;
  stop(): Promise<void>;
}

const passing = defineMiddleware({ name: "passing", run: (_, next: Next) => next() });

/** A consumer that records each order that it has handled, and returns an invoice. */
export function consuming<Tx>(
  harness: StoreHarness<Tx>,
  {
    mode,
    store = harness.store,
    name = consumer,
    options = {},
    outside = passing,
    handlesUnknown = false,
    handle,
    ...routerOptions
  }: ConsumingOptions<Tx>,
): Consuming {
  const log = telemetryLog();
  const begun: string[] = [];
  const untyped = store as Store;
  const timing = { leaseMs: 3_000, pollIntervalMs: 20, ...options };
  const answer = async (order: string, { tx, attempt, signal }: Omit<Handling<unknown>, "order">) => {
    begun.push(order);
    await harness.effect(tx as Tx, order);
    await handle?.({ order, tx: tx as Tx, attempt, signal });
    return [Invoiced.message({ order })];
  };
  const router = createRouter(name, {
    backoff: constant(1),
    shutdownTimeoutMs: 3_000,
    ...routerOptions,
    telemetry: log.telemetry,
  })
    .use(outside)
    .use(transaction(untyped))
    .use(mode === "inbox" ? inbox(untyped, timing) : durableInbox(untyped, timing))
    .use(outboxOutputs(createOutbox(untyped, { source: "/billing" })))
    .on(Placed, ({ order }, context) => answer(order, context))
    .on(Keyed, ({ order }, context) => answer(order, context));
  if (handlesUnknown) router.on(Unknown, ({ order }, context) => answer(order, context));
  // If a fact fails, its router must not run beside the next fact.
  onTestFinished(() => router.stop().catch(() => {}));
  return { router, log, begun, start: (receiver) => router.start(receiver), stop: () => router.stop() };
}

/** Resolves when this many orders have an effect; only the test's time limit ends it. */
export async function untilEffects<Tx>({ effects }: StoreHarness<Tx>, count: number): Promise<readonly string[]> {
  for (;;) {
    const found = await effects();
    if (found.length >= count) return found;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Resolves when the consumer's box is empty. */
export async function untilEmpty<Tx>({ contents }: StoreHarness<Tx>): Promise<void> {
  for (;;) {
    const { pending, wait } = await contents(box);
    if (pending.length + wait.length === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
