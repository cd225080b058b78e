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

/** Options of `testMessaging`. */
export interface TestMessagingOptions<Inbox extends InboxMode = InboxMode>
  extends Omit<MessagingOptions<AnyStore, true, Inbox>, Fixed> {
  /** The name of the service. Defaults to "app". */
  readonly service?: string;
  /**
   * Events that other services handle. `settled()` does not report that no consumer here handles them. Defaults to
   * none.
   */
  readonly handledElsewhere?: readonly Binding[];
}

/**
 * The messaging of a service under test, on a broker in memory. Messages are relayed and handled only in `settled()`
 * and `deliver()`.
 */
export interface TestMessaging<S extends AnyStore = AnyStore, Inbox extends InboxMode = InboxMode> {
  /** Give it to your own code, which registers consumers and publishes with it. */
  readonly messaging: Messaging<S, true, Inbox>;
  readonly store: S;
  readonly broker: MemoryBroker;
  /** For a router of your own, which `settled()` then waits for: `await router.start(app.receiver)`. */
  readonly receiver: Receiver;
  /**
   * Resolves when every published message is relayed, delivered and handled, including those that handlers publish.
   * Messages that are not due yet stay where they are.
   *
   * Rejects with a `NotSettledError` if a message failed, was parked, or is handled by no consumer. It names each of
   * these with its error: a message that waits for a retry every time, a parked one only once.
   */
  settled(options?: SettledOptions): Promise<void>;
  /** All messages that were published and committed so far. */
  readonly published: ReadPublished;
  /** Runs `work` and returns what it published and committed: see the function of this name. */
  publishedBy<R>(work: () => Promise<R>): Promise<PublishedBy<R>>;
  /**
   * Puts a message into the queues of the consumers that handle it, as if another service had sent it; `settled()`
   * waits for its handlers. Rejects with `publish-failed` if no consumer handles it. Repeat an `id` to deliver a
   * duplicate.
   */
  deliver<E extends EventDefinition>(event: E, data: DataIn<E>, options?: MessageOptions): Promise<Published>;
  /** Stops everything. Then close what you opened yourself, such as the store. */
  close(): Promise<void>;
  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** With a store in memory, whose clock only the test advances. */
export interface InMemoryMessaging<Inbox extends InboxMode = InboxMode> extends TestMessaging<MemoryStore, Inbox> {
  readonly clock: TestClock;
  /**
   * The clock of the test, for other parts of your service: `createSchedule(app.messaging.outbox, entries, { runtime:
   * app.runtime })`.
   */
  readonly runtime: Partial<Runtime>;
}

/**
 * For stores in memory, by the clock of the loops. No pause of the relay or a consumer is longer, so each of them has
 * polled after this time.
 */
const pollMs = 300;
/** For a store of the user, in real time. */
const realPollMs = 10;
/** Longer than any test advances the clock, so that no lease expires. */
const leaseMs = 365 * 24 * 3_600_000;

/**
 * Makes the messaging of a service for its own tests, with the outbox on, and by default also the inbox.
 *
 * Without a store, everything is in memory and time stands still until `clock.advance(ms)`. With a store of your own,
 * such as one on PGlite, time is the system's; migrate it first.
 *
 * @example
 * ```ts
 * await using app = testMessaging();
 * app.messaging.consumer("billing").on(OrderPlaced, async (order) => console.log(order.orderId));
 * await app.deliver(OrderPlaced, { orderId: "1", total: 20 });
 * await app.settled();
 * ```
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
    // Sent messages stay in the outbox: they are the record of what was published.
    relayOptions: { ...more.relayOptions, ...polling, onSent: "keep" },
    inboxOptions: { ...more.inboxOptions, ...polling },
    ...(time && { runtime: time.loops }),
  });
  const incoming = createPublisher(broker.sender(), { source: "/elsewhere", codecs: more.codecs ?? [] });
  const standing = standingOf({ store, broker, receiver, now });
  const deliveries = () => receiver.deliveries;
  const isHandling = () => receiver.unsettled > 0 || activity.handling.length > 0;
  const poll = time && (() => time.poll(pollMs));

  /** Advances virtual time until `work` has ended: a stop waits only so long for handlers that hang. */
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
          // Stopping would wait for a handler that is still running.
          if (!isHandling()) await stop();
        },
      );
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Captured early, since a test may replace the timers of its process. */
const { setImmediate } = globalThis;

/** An append may wait for a transaction that itself waits for time to pass. */
const mostTurns = 100;

/** Tracks unanswered appends to a store in memory. */
function createAppends() {
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
  let underWay = 0;
  return {
    /**
     * Answers in a later turn of the event loop, like a database. So a publish that a handler does not await fails
     * here, too.
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
    /** Resolves when all of them have been answered. */
    async idle(): Promise<void> {
      await turn();
      for (let turns = 0; underWay > 0 && turns < mostTurns; turns++) await turn();
    },
  };
}
