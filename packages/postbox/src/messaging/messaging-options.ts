import { ConfigError } from "../errors.js";
import { checkInbox, type InboxOptions } from "../inbox/inbox-options.js";
import type { Runtime } from "../internal/runtime.js";
import { type Codec, codecList } from "../message/codec.js";
import { type Notifier, notifierRule } from "../notifier.js";
import { callback, checkOptions, count, flag, type OptionRule, object, oneOf, positive, text } from "../options.js";
import type { OutboxOptions } from "../outbox/outbox.js";
import type { DirectPublisherOptions } from "../publisher/create-publisher.js";
import type { OwnPurgeOptions, RelayOptions } from "../relay/relay-options.js";
import { type RouterOptions, routerRules } from "../router/router-options.js";
import type { Store } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Receiver, Sender } from "../transport.js";
import type { ConsumerOptions, InboxMode } from "./messaging.js";

// biome-ignore lint/suspicious/noExplicitAny: any store, whatever its transactions are.
export type AnyStore = Store<any>;

/** Options of `createMessaging`. */
export interface MessagingOptions<
  S extends AnyStore | undefined = AnyStore | undefined,
  Outbox extends boolean = boolean,
  Inbox extends InboxMode = InboxMode,
> {
  /** The name of your service. */
  readonly service: string;
  /**
   * The CloudEvents `source` of everything that this service publishes. Defaults to `/` followed by the service's name.
   */
  readonly source?: string;
  /** The name of the consumer that `consumer()` makes without a name. Defaults to the service's name. */
  readonly group?: string;
  /**
   * Holds the outbox and the inbox, and is required if one of them is on. Handlers get its transactions in either case.
   * Defaults to none.
   */
  readonly store?: S;
  /** Sends to the broker: for the relay, or for the publisher if the outbox is off. */
  readonly sender: Sender;
  /**
   * What consumers receive from: one receiver for all, or a function from a consumer's name to its receiver. `run` and
   * `start` need it if there are consumers. Defaults to none.
   */
  readonly receiver?: Receiver | ((consumer: string) => Receiver);
  /** Whether a publish stores its message in the publisher's transaction, for the relay to send. Defaults to false. */
  readonly outbox?: Outbox;
  /** Whether consumers handle each message once: see `inbox` and `durableInbox`. Defaults to false. */
  readonly inbox?: Inbox;
  /** For the relay: see `RelayOptions`. Defaults to 500. */
  readonly pollIntervalMs?: number;
  /** For the relay: see `RelayOptions`. Defaults to 500. */
  readonly batchSize?: number;
  /** Total tries of a message before it is parked, by the relay and by consumers. Defaults to 10. */
  readonly maxAttempts?: number;
  /** In addition to JSON and bytes, which are built in. Defaults to none. */
  readonly codecs?: readonly Codec[];
  /** Wakes the relay: see `OutboxOptions` and `RelayOptions`. Defaults to a notifier within this `Messaging`. */
  readonly notifier?: Notifier | false;
  /** Receives the events of all parts. Defaults to warnings and errors on the console; `silent` turns that off. */
  readonly telemetry?: Telemetry;
  /**
   * More options of the publisher. `strictKeyOrder` applies with the outbox on, `publishTimeoutMs` with the outbox off.
   * Defaults to none.
   */
  readonly publisherOptions?: Omit<
    OutboxOptions & DirectPublisherOptions,
    "source" | "codecs" | "telemetry" | "runtime" | "notifier"
  >;
  /** More options of the relay. Defaults to none. */
  readonly relayOptions?: Omit<RelayOptions, "notifier"> & OwnPurgeOptions<S>;
  /** More options of all routers. Defaults to none. */
  readonly routerOptions?: Omit<RouterOptions, "ack">;
  /** More options of the inboxes of all consumers. Defaults to none. */
  readonly inboxOptions?: InboxOptions;
  /** @experimental Time, randomness and failpoints. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

const store: OptionRule = {
  expected: "a store, such as postgresStore({ pool })",
  test: (value) => typeof (value as Partial<Store> | null)?.transaction === "function",
};
const sender: OptionRule = {
  expected: "a sender, such as broker.sender()",
  test: (value) => typeof (value as Partial<Sender> | null)?.send === "function",
};
const receiver: OptionRule = {
  expected: "a receiver, such as broker.receiver(), or a function from a consumer's name to one",
  test: (value) => typeof value === "function" || typeof (value as Partial<Receiver> | null)?.receive === "function",
};
const mode: OptionRule = {
  expected: 'true, false or "durable"',
  test: (value) => typeof value === "boolean" || value === "durable",
};

const rules = {
  service: text,
  source: text,
  group: text,
  store,
  sender,
  receiver,
  outbox: flag,
  inbox: mode,
  pollIntervalMs: positive,
  batchSize: count,
  maxAttempts: count,
  codecs: codecList,
  notifier: notifierRule,
  telemetry: callback,
  publisherOptions: object,
  relayOptions: object,
  routerOptions: object,
  inboxOptions: object,
  runtime: object,
  // `messagingOptionsFromEnv` returns them too; the caller has used them to connect the store and the sender.
  databaseUrl: text,
  brokerUrl: text,
};

export function checkMessaging(options: MessagingOptions): void {
  checkOptions("createMessaging", options, rules, ["service", "sender"], { routerOptions: routerRules });
  const { routerOptions = {}, inboxOptions = {} } = options;
  checkOptions("createMessaging: routerOptions", routerOptions, routerRules);
  checkInbox("inbox", inboxOptions, 1_000);
  if (options.outbox) requireStore("createMessaging: the outbox", options.store);
  if (options.inbox) requireStore("createMessaging: the inbox", options.store);
}

const consumerRules = {
  ...routerRules,
  inbox: mode,
  inboxOptions: object,
  isolation: oneOf("read committed", "repeatable read", "serializable"),
  outside: callback,
};

export function checkConsumer(name: string, options: ConsumerOptions): void {
  checkOptions(`consumer ${name}`, options, consumerRules);
}

/** The store, or an error that names the part that needs one. */
export function requireStore(who: string, store: AnyStore | undefined): AnyStore {
  if (store !== undefined) return store;
  throw new ConfigError(
    "option-invalid",
    `${who} is on and has no store to be in; give createMessaging 'store', such as postgresStore({ pool }), or ` +
      "turn it off",
    { path: "store" },
  );
}
