import type { HealthOptions } from "../health.js";
import { type Following, following } from "../internal/following.js";
import { given } from "../options.js";
import { createOutbox } from "../outbox/outbox.js";
import { createPublisher } from "../publisher/create-publisher.js";
import { createRelay } from "../relay/relay.js";
import type { RunsReceiver } from "../router/router.js";
import { healthOf } from "../stores/box-problems.js";
import type { Receiver } from "../transport.js";
import { createConsumers } from "./consumers.js";
import { handlerProblems } from "./handler-problems.js";
import type { InboxMode, Messaging } from "./messaging.js";
import { type AnyStore, checkMessaging, type MessagingOptions } from "./messaging-options.js";
import { type Running, runTogether } from "./run-together.js";
import { transportProblems } from "./transport-problems.js";

/** What the outbox and the inbox need. */
interface StoreNeeded {
  readonly store: AnyStore;
}
type NeedsStore<Outbox, Inbox> = [Outbox] extends [true]
  ? StoreNeeded
  : [Inbox] extends [true | "durable"]
    ? StoreNeeded
    : unknown;

/**
 * Makes the publisher, the relay and the consumers of a service, with the outbox and the inbox each on or off. Checks
 * the options of parts that are off, too, so that turning one on later brings no surprise.
 *
 * @example
 * ```ts
 * const messaging = createMessaging({
 *   service: "shop",
 *   store,
 *   outbox: true,
 *   inbox: true,
 *   sender,
 *   receiver: (consumer) => broker.receiver(consumer),
 * });
 * messaging.consumer("billing").on(OrderPlaced, async (order, { tx }) => {
 *   await tx.query("INSERT INTO invoices (order_id) VALUES ($1)", [order.orderId]);
 * });
 * await messaging.start();
 * ```
 */
export function createMessaging<
  S extends AnyStore | undefined = AnyStore | undefined,
  Outbox extends boolean = false,
  Inbox extends InboxMode = false,
>(options: MessagingOptions<S, Outbox, Inbox> & NeedsStore<Outbox, Inbox>): Messaging<S, Outbox, Inbox>;
export function createMessaging(options: MessagingOptions): unknown {
  checkMessaging(options);
  const { service, group = service, store } = options;
  const { publisher, outbox, relay } = publishingParts(options);
  const { routers, create, seal, receiverOf } = createConsumers(options, given({ publisher }, { outbox }));
  let started: Running | undefined;
  const runs = new Set<{ readonly end: Following; readonly ended: Promise<void> }>();

  function together(): Running {
    return runTogether(
      [...routers].map(([name, router]) => running(router, receiverOf(name))),
      relay === undefined ? [] : [relay],
    );
  }

  async function stop(): Promise<void> {
    for (const { end } of runs) end.abort();
    const ended = Promise.allSettled([...runs].map((run) => run.ended));
    try {
      await started?.stop();
      // Also stops what was started on its own, such as `messaging.relay.start()` in a process that only relays.
      for (const router of routers.values()) await router.stop();
      await relay?.stop();
    } finally {
      await ended;
    }
  }
  async function close(): Promise<void> {
    try {
      await stop();
    } finally {
      await options.sender.close?.();
    }
  }

  return {
    publisher,
    in: outbox === undefined ? () => publisher : (tx: unknown) => outbox.in(tx),
    outbox,
    relay,
    consumer: (name = group, own = {}) => create(name, own),
    async prepare() {
      for (const [name, router] of routers) await router.prepare(receiverOf(name));
    },
    async run(signal: AbortSignal = new AbortController().signal) {
      const all = together();
      seal();
      const end = following(signal);
      const run = { end, ended: all.run(end.signal) };
      runs.add(run);
      try {
        await run.ended;
      } finally {
        runs.delete(run);
        end.abort();
      }
    },
    start() {
      const all = together();
      const starting = all.start();
      seal();
      started = all;
      return starting;
    },
    stop,
    async health(limits: HealthOptions = {}) {
      const stored = await store?.health(limits);
      const own = [...transportProblems(options.sender, routers), ...handlerProblems(routers)];
      return healthOf([...(stored?.problems ?? []), ...own]);
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

/**
 * The publisher, the outbox and the relay. A part that is off is made too, where possible, so that its options are
 * checked.
 */
function publishingParts(options: MessagingOptions) {
  const { service, source = `/${service}`, store, sender, codecs, notifier, telemetry, maxAttempts, runtime } = options;
  const { strictKeyOrder, publishTimeoutMs, ...rest } = options.publisherOptions ?? {};
  const shared = given({ source, codecs, runtime }, rest);
  const direct = createPublisher(sender, given(shared, { telemetry, publishTimeoutMs }));
  if (store === undefined) return { publisher: direct };
  const { pollIntervalMs, batchSize } = options;
  const relayOptions = { pollIntervalMs, batchSize, maxAttempts, notifier, telemetry, runtime };
  const outbox = createOutbox(store, given(shared, { telemetry, notifier, strictKeyOrder }));
  const relay = createRelay(store, sender, given(relayOptions, options.relayOptions));
  return options.outbox ? { publisher: outbox, outbox, relay } : { publisher: direct };
}

function running(router: RunsReceiver, receiver: Receiver): Running {
  return {
    run: (signal, ready) => router.run(ready === undefined ? receiver : tellingReady(receiver, ready), signal),
    start: () => router.start(receiver),
    stop: () => router.stop(),
  };
}

/** The same receiver, which also calls `ready` once it receives: its queues are bound by then. */
function tellingReady(receiver: Receiver, ready: () => void): Receiver {
  const receive: Receiver["receive"] = (subscription, signal) => {
    const both = () => {
      ready();
      subscription.ready?.();
    };
    return receiver.receive({ ...subscription, ready: both }, signal);
  };
  const { name, redeliveryWindowMs, storesFailures, settles, redelivery, selects } = receiver;
  const health = receiver.health && (() => (receiver.health as NonNullable<Receiver["health"]>)());
  return given({ name, receive }, { redeliveryWindowMs, storesFailures, settles, redelivery, selects, health });
}
