import {
  createMessaging,
  createPublisher,
  type DataIn,
  type EventDefinition,
  type InboxMode,
  type MessageOptions,
  type Messaging,
  type MessagingOptions,
  PostboxError,
  type Published,
  type Receiver,
  type Store,
  silent,
} from "postbox";
import { type Binding, type MemoryBroker, type MemoryStore, memoryBroker, memoryStore } from "postbox/memory";
import type { Runtime } from "postbox/store";
import { createActivity } from "./activity.js";
import { NotSettledError } from "./not-settled-error.js";
import { type PublishedBy, publishedBy, publishedTo, type ReadPublished } from "./published.js";
import { type SettledOptions, settle, storeSilent } from "./settle.js";
import { standingOf } from "./standing.js";
import { type TestClock, testTime } from "./test-clock.js";
import { watchedReceiver } from "./watched-receiver.js";
import { within } from "./within.js";

// biome-ignore lint/suspicious/noExplicitAny: any store, whatever its transactions are.
type AnyStore = Store<any>;

type Fixed = "service" | "store" | "sender" | "receiver" | "outbox" | "pollIntervalMs" | "runtime";

export interface TestMessagingOptions<Inbox extends InboxMode = InboxMode>
  extends Omit<MessagingOptions<AnyStore, true, Inbox>, Fixed> {
  /** The name of the service. Defaults to "app". */
  readonly service?: string;
  /** Events that other services handle: `settled()` does not report that no consumer here does. Defaults to none. */
  readonly handledElsewhere?: readonly Binding[];
}

/**
 * The messaging of a service under test, over a broker in memory. Nothing is relayed or handled before `settled()` or
 * `deliver()`.
 */
export interface TestMessaging<S extends AnyStore = AnyStore, Inbox extends InboxMode = InboxMode> {
  /** What your own code is given: register consumers and publish with it. */
  readonly messaging: Messaging<S, true, Inbox>;
  readonly store: S;
  readonly broker: MemoryBroker;
  /** For a router of your own, which `settled()` then waits for: `await router.start(app.receiver)`. */
  readonly receiver: Receiver;
  /**
   * Resolves when everything that was published is relayed, delivered and handled, and what its handlers published in
   * turn, too. What is not due yet stays where it is. Rejects with a `NotSettledError` if a message failed, was parked,
   * or no consumer handles it; it names each of these with the error. A message that waits for a retry is named each
   * time, a parked one once.
   */
  settled(options?: SettledOptions): Promise<void>;
  /** What was published and committed so far. */
  readonly published: ReadPublished;
  /** What `work` publishes and commits: see the function of this name. */
  publishedBy<R>(work: () => Promise<R>): Promise<PublishedBy<R>>;
  /**
   * Puts a message into the queues of the consumers that handle it, as if another service had sent it; `settled()`
   * waits for its handlers. Rejects with `publish-failed` if no consumer handles it. The same `id` again is a
   * duplicate.
   */
  deliver<E extends EventDefinition>(event: E, data: DataIn<E>, options?: MessageOptions): Promise<Published>;
  /** Stops everything. What you opened yourself, such as the store, is yours to close, after this. */
  close(): Promise<void>;
  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** With a store in memory, whose time only the test moves. */
export interface InMemoryMessaging<Inbox extends InboxMode = InboxMode> extends TestMessaging<MemoryStore, Inbox> {
  readonly clock: TestClock;
  /**
   * The time of the test, for what else lives by it: `createSchedule(app.messaging.outbox, entries, { runtime:
   * app.runtime })`.
   */
  readonly runtime: Partial<Runtime>;
}

/**
 * In memory, of the loops' own time: no pause of relay and consumers is longer, so that after it each of them has
 * looked.
 */
const pollMs = 300;
/** With a store of the user's, in real time. */
const realPollMs = 10;
/** Longer than any test moves the clock, so that no lane is ever lost to it. */
const leaseMs = 365 * 24 * 3_600_000;

/**
 * Makes the messaging of a service for its own tests, with the outbox on, and the inbox too unless told otherwise.
 *
 * Without a store, everything is in memory and time stands still until `clock.advance(ms)`. With a store of yours, such
 * as one on PGlite, time is the system's; migrate it first.
 */
export function testMessaging<Inbox extends InboxMode = true>(
  options?: TestMessagingOptions<Inbox> & { readonly store?: never },
): InMemoryMessaging<Inbox>;
export function testMessaging<S extends AnyStore, Inbox extends InboxMode = true>(
  options: TestMessagingOptions<Inbox> & { readonly store: S },
): TestMessaging<S, Inbox>;
export function testMessaging(
  options: TestMessagingOptions & { readonly store?: AnyStore } = {},
): TestMessaging & { readonly clock?: TestClock; readonly runtime?: Partial<Runtime> } {
  const { service = "app", store: given, handledElsewhere = [], inbox = true, telemetry = silent, ...more } = options;
  const appends = createAppends();
  const time = given === undefined ? testTime(appends.idle) : undefined;
  const now = () => time?.clock.now() ?? Date.now();
  const store: AnyStore = given ?? appends.answeredLater(memoryStore(time && { runtime: time.storage }));
  const broker = memoryBroker(time && { runtime: time.storage });
  broker.bind("handled elsewhere", handledElsewhere);

  const activity = createActivity(telemetry);
  const receiver = watchedReceiver(broker, now, () => activity.changed());
  const polling = time === undefined ? { pollIntervalMs: realPollMs } : { pollIntervalMs: pollMs, leaseMs };
  const messaging = createMessaging({
    ...more,
    service,
    store,
    inbox,
    outbox: true,
    sender: broker.sender(),
    receiver,
    telemetry: activity.telemetry,
    // What was sent stays in the outbox: it is the record of what was published.
    relayOptions: { ...more.relayOptions, ...polling, onSent: "keep" },
    inboxOptions: { ...more.inboxOptions, ...polling },
    ...(time && { runtime: time.loops }),
  });
  const incoming = createPublisher(broker.sender(), { source: "/elsewhere", codecs: more.codecs ?? [] });
  const standing = standingOf({ store, broker, receiver, now });
  const deliveries = () => receiver.deliveries;
  const isHandling = () => receiver.unsettled > 0 || activity.handling.length > 0;
  const poll = time && (() => time.poll(pollMs));

  /** Lets virtual time pass until it has ended: a stop waits for handlers that hang, but not for ever. */
  async function whilePolling<R>(work: Promise<R>): Promise<R> {
    let over = false;
    const ended = work.finally(() => {
      over = true;
    });
    ended.catch(() => {});
    while (poll !== undefined && !over) await time?.poll(1_000);
    return ended;
  }

  let running = false;
  async function start(): Promise<void> {
    if (running) return;
    try {
      await whilePolling(messaging.start());
      running = true;
    } catch (error) {
      // The code under test has started it, and stops it.
      if (!(error instanceof PostboxError && error.code === "already-started")) throw error;
    }
  }

  async function stop(): Promise<void> {
    if (!running) return;
    running = false;
    await whilePolling(messaging.stop());
  }

  const close = () => whilePolling(messaging.close());
  return {
    messaging,
    store,
    broker,
    receiver,
    ...(time && { clock: time.clock, runtime: time.storage }),
    published: publishedTo(store, more.codecs ?? []),
    publishedBy: (work) => publishedBy(store, work),
    async deliver(event, data, messageOptions) {
      await start();
      return incoming.publish(event, data, messageOptions);
    },
    async settled(settledOptions = {}) {
      if (store.current() !== undefined) {
        const text =
          "settled() was called inside of a transaction, whose messages are not committed yet; await it afterwards";
        throw new NotSettledError(text, []);
      }
      const { timeoutMs = 5_000 } = settledOptions;
      await within(timeoutMs, start(), () => storeSilent(timeoutMs));
      await settle({ activity, standing, deliveries, isHandling, ...(poll && { poll }) }, settledOptions).finally(
        async () => {
          // A handler that still runs keeps everything running: to stop would be to wait for it.
          if (!isHandling()) await stop();
        },
      );
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Kept, since a test may replace the timers of its process. */
const { setImmediate } = globalThis;

/** An append may wait for a transaction that waits for time to pass. */
const mostTurns = 100;

/** The appends to a store in memory that have not been answered. */
function createAppends() {
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
  let underWay = 0;
  return {
    /**
     * As a database does, it answers in a later turn of the event loop: a publish that a handler does not wait for
     * fails here, too.
     */
    answeredLater: (store: MemoryStore): MemoryStore => ({
      ...store,
      async append(...args) {
        underWay++;
        try {
          await turn();
          await store.append(...args);
        } finally {
          underWay--;
        }
      },
    }),
    /** Resolves when each of them has been answered. */
    async idle(): Promise<void> {
      await turn();
      for (let turns = 0; underWay > 0 && turns < mostTurns; turns++) await turn();
    },
  };
}
