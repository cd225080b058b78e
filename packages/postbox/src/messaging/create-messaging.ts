import { ConfigError } from "../errors.js";
import type { HealthOptions } from "../health.js";
import { type Following, following } from "../internal/following.js";
import { correlation } from "../middleware/correlation.js";
import { durableInbox } from "../middleware/durable-inbox.js";
import { inbox } from "../middleware/inbox.js";
import { outboxOutputs } from "../middleware/outbox-outputs.js";
import { publishOutputs } from "../middleware/publish-outputs.js";
import { transaction } from "../middleware/transaction.js";
import { given } from "../options.js";
import { createOutbox } from "../outbox/outbox.js";
import { createPublisher } from "../publisher/create-publisher.js";
import { createRelay } from "../relay/relay.js";
import { createRouter } from "../router/create-router.js";
import type { AnyMiddleware } from "../router/middleware.js";
import type { RunsReceiver } from "../router/router.js";
import { healthOf } from "../stores/box-problems.js";
import type { Receiver } from "../transport.js";
import type { ConsumerOptions, InboxMode, Messaging } from "./messaging.js";
import {
  type AnyStore,
  checkConsumer,
  checkMessaging,
  type MessagingOptions,
  requireStore,
} from "./messaging-options.js";
import { type Running, runTogether } from "./run-together.js";
import { transportProblems } from "./transport-problems.js";
import { withoutOutputs } from "./without-outputs.js";

/** What outbox and inbox need. */
interface StoreNeeded {
  readonly store: AnyStore;
}
type NeedsStore<Outbox, Inbox> = [Outbox] extends [true]
  ? StoreNeeded
  : [Inbox] extends [true | "durable"]
    ? StoreNeeded
    : unknown;

/**
 * Makes the publisher, the relay and the consumers of a service, with the outbox and the inbox each on or off. Also what is
 * given for a part that is off is checked, so that turning it on brings no surprise.
 */
export function createMessaging<
  S extends AnyStore | undefined = AnyStore | undefined,
  Outbox extends boolean = false,
  Inbox extends InboxMode = false,
>(options: MessagingOptions<S, Outbox, Inbox> & NeedsStore<Outbox, Inbox>): Messaging<S, Outbox, Inbox>;
export function createMessaging(options: MessagingOptions): unknown {
  checkMessaging(options);
  const { service, group = service, store, receiver, telemetry, codecs, maxAttempts, runtime } = options;
  const { publisher, outbox, relay } = publishingParts(options);
  const consumers = new Map<string, RunsReceiver>();
  let sealed = false;
  let started: Running | undefined;
  const runs = new Set<{ readonly end: Following; readonly ended: Promise<void> }>();

  /** What stands around the handlers of a consumer, the outermost first. */
  function* middleware(name: string, own: ConsumerOptions): Generator<AnyMiddleware> {
    const mode = own.inbox ?? options.inbox ?? false;
    if (outbox === undefined && !mode) yield publishOutputs(publisher);
    if (store !== undefined) yield transaction(store, given({ isolation: own.isolation }));
    if (mode) {
      const make = mode === "durable" ? durableInbox : inbox;
      yield make(requireStore(`consumer ${name}: the inbox`, store), given(options.inboxOptions, own.inboxOptions));
    }
    if (outbox !== undefined) yield outboxOutputs(outbox);
    else if (mode) yield withoutOutputs();
  }

  function consumer(name = group, own: ConsumerOptions = {}): RunsReceiver {
    checkNew(name);
    checkConsumer(name, own);
    const { inbox: _inbox, inboxOptions, isolation, outside, ...routerOptions } = own;
    const shared = { maxAttempts, codecs, telemetry, runtime };
    const router = createRouter(name, given(given(shared, options.routerOptions), routerOptions));
    // It changes and returns itself, whatever it says about its type.
    const untyped = router as unknown as { use(middleware: AnyMiddleware): unknown };
    untyped.use(correlation());
    outside?.(router);
    for (const each of middleware(name, own)) untyped.use(each);
    consumers.set(name, router);
    return router;
  }

  function checkNew(name: string): void {
    if (consumers.has(name)) {
      const text = `there is a consumer ${name} already; register more events with its .on(...), or give this one another name`;
      throw new ConfigError("option-invalid", `createMessaging: ${text}`, { path: "name" });
    }
    if (sealed) {
      throw new ConfigError("already-started", `${service} has run already; make its consumer ${name} before it does`);
    }
  }

  function together(): Running {
    return runTogether(
      [...consumers].map(([name, router]) => running(router, receiverOf(name))),
      relay === undefined ? [] : [relay],
    );
  }

  function receiverOf(name: string): Receiver {
    if (receiver === undefined) {
      throw new ConfigError(
        "option-invalid",
        `consumer ${name} has nothing to run on; give createMessaging 'receiver', such as broker.receiver(), or run it with one`,
        { path: "receiver" },
      );
    }
    return typeof receiver === "function" ? receiver(name) : receiver;
  }

  async function stop(): Promise<void> {
    for (const { end } of runs) end.abort();
    const ended = Promise.allSettled([...runs].map((run) => run.ended));
    try {
      await started?.stop();
      // Also what was started by itself, such as `messaging.relay.start()` in a process that only relays.
      for (const router of consumers.values()) await router.stop();
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
    consumer,
    async prepare() {
      for (const [name, router] of consumers) await router.prepare(receiverOf(name));
    },
    async run(signal: AbortSignal = new AbortController().signal) {
      const all = together();
      sealed = true;
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
      sealed = true;
      started = all;
      return starting;
    },
    stop,
    async health(limits: HealthOptions = {}) {
      const stored = await store?.health(limits);
      return healthOf([...(stored?.problems ?? []), ...transportProblems(options.sender, consumers)]);
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Who publishes. Also what is off is made, if it can be: so its options are checked. */
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

/** The same receiver, which also calls `ready` when it receives: its queues are bound then. */
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
