import type { Health, HealthOptions } from "../health.js";
import type { InboxOptions } from "../inbox/inbox-options.js";
import type { OutboxPublisher, Outbox as OutboxWith, SyncOutboxPublisher } from "../outbox/outbox.js";
import type { Publisher } from "../publisher/publisher.js";
import type { Relay } from "../relay/relay.js";
import type { AckStrategyName } from "../router/ack-strategy.js";
import type {
  BaseContext,
  ForwardAck,
  InTransaction,
  ManualAck,
  PublishesOutputs,
  WithOutputs,
  WithoutOutputs,
} from "../router/context.js";
import type { Router } from "../router/router.js";
import type { RouterOptions } from "../router/router-options.js";
import type { IsolationLevel, Store, SyncStore } from "../store.js";
import type { HandlerProblem } from "./handler-problems.js";
import type { AnyStore } from "./messaging-options.js";
import type { TransportProblem } from "./transport-problems.js";
import type { NoOutbox } from "./without-outputs.js";

/** Whether a consumer remembers what it has handled: off, on (`inbox(store)`), or `durable` (`durableInbox(store)`). */
export type InboxMode = boolean | "durable";

/** What the ack strategy adds to the handler's context. */
type Acking<Ack> = Ack extends "manual" ? ManualAck : Ack extends "forward" ? ForwardAck : unknown;
type AckFor<S> = [S] extends [AnyStore]
  ? Exclude<AckStrategyName, "manual"> | "with a store the router acks after the commit, so the handler cannot"
  : AckStrategyName;
type ModeFor<S> = [S] extends [AnyStore] ? InboxMode : false | "the inbox needs a store: give createMessaging one";

/** The parameters and the result of the store's `health`; a store may have limits and problems of its own. */
type HealthOptionsOf<S> = [S] extends [AnyStore] ? NonNullable<Parameters<S["health"]>[0]> : HealthOptions;
type ProblemOf<S> = S extends { health(): Promise<Health<infer Problem>> } ? Problem : never;

/**
 * What happens to a handler's outputs. If a switch is only known at run time, outputs compile, and are checked then.
 */
type OutputsOf<Outbox extends boolean, Inbox> = [Outbox] extends [false]
  ? [Inbox] extends [false]
    ? PublishesOutputs
    : [Inbox] extends [true | "durable"]
      ? WithoutOutputs<NoOutbox>
      : WithOutputs
  : WithOutputs;
/** The transaction handle of the store; `never` if there may be no store. */
type TxOf<S> = [S] extends [AnyStore] ? (S extends Store<infer Tx> ? Tx : never) : never;
type InTransactionOf<S> = [S] extends [AnyStore] ? InTransaction<TxOf<S>> : unknown;
type Effective<Own, Inbox> = Exclude<Own, undefined> | (undefined extends Own ? Inbox : never);

/** Options of `messaging.consumer`. */
export interface ConsumerOptions<
  Ack extends string = AckStrategyName,
  Inbox extends InboxMode | string | undefined = InboxMode,
  Outer extends BaseContext = BaseContext,
> extends Omit<RouterOptions, "ack"> {
  /** See `RouterOptions`. `manual` is possible only without a store, `forward` only with outbox and inbox off. */
  readonly ack?: Ack;
  /** Overrides `inbox` of `createMessaging` for this consumer. */
  readonly inbox?: Inbox;
  /** Options of this consumer's inbox. Defaults to `inboxOptions` of `createMessaging`. */
  readonly inboxOptions?: InboxOptions;
  /** The isolation of the transaction around the handlers. Defaults to the database's default. */
  readonly isolation?: IsolationLevel;
  /**
   * Adds middleware that must stand outside of the transaction: `(router) => router.use(timeout(5_000))`. Defaults to
   * none.
   */
  readonly outside?: (router: Router<BaseContext & Acking<Ack>>) => Router<Outer>;
}

/** Only an outbox can cancel. */
type PublisherOf<Outbox extends boolean> = [Outbox] extends [true] ? OutboxPublisher : Publisher;

/** Only an outbox in a synchronous store can publish synchronously. */
type PublisherIn<S, Outbox extends boolean> = [Outbox, S] extends [true, SyncStore<never>]
  ? SyncOutboxPublisher
  : PublisherOf<Outbox>;

/**
 * The messaging of one service, with the outbox and the inbox each on or off. The same code works with either setting.
 * What a setting makes impossible does not compile if the switch is a literal, and is refused at run time otherwise.
 */
export interface Messaging<
  S extends AnyStore | undefined = AnyStore | undefined,
  Outbox extends boolean = boolean,
  Inbox extends InboxMode = InboxMode,
> {
  /**
   * With the outbox on, publishes into the surrounding transaction of the store, and rejects with `transaction-missing`
   * if there is none. With the outbox off, publishes straight to the broker, whether or not a surrounding transaction
   * commits; then there is no `cancel`, since nothing is scheduled.
   */
  readonly publisher: PublisherOf<Outbox>;
  /**
   * With the outbox on, a publisher into `tx`, for a transaction that the store did not open. With the outbox off,
   * `publisher`.
   */
  in(tx: TxOf<S>): PublisherIn<S, Outbox>;
  /** The outbox itself, for example for `createSchedule`; undefined if the outbox is off. */
  readonly outbox: Outbox extends true ? OutboxWith<TxOf<S>> : undefined;
  /** Sends from the outbox to the broker; undefined if the outbox is off. */
  readonly relay: Outbox extends true ? Relay : undefined;
  /**
   * Makes a consumer: a router with the middleware that the switches call for, so that `.on(event, handler)` comes
   * next. The middleware, from the outermost: `correlation`, what `outside` adds, `publishOutputs` (if both switches
   * are off), `transaction` (with a store), the inbox, `outboxOutputs`. The name defaults to `group`, then to
   * `service`; each name can be used once.
   */
  consumer<
    Ack extends AckFor<S> = "on-success",
    Own extends ModeFor<S> | undefined = undefined,
    Outer extends BaseContext = BaseContext & Acking<Ack>,
  >(
    name?: string,
    options?: ConsumerOptions<Ack, Own, Outer>,
  ): Router<Outer & InTransactionOf<S> & OutputsOf<Outbox, Effective<Own, Inbox>>>;
  /**
   * Makes what all consumers need at the broker, such as bound queues, and receives nothing: see `Router.prepare`. Call
   * it in a step of the deployment before publishers of new events start.
   */
  prepare(): Promise<void>;
  /**
   * Runs all consumers and the relay until the signal is aborted, or `stop` or `close` is called. The relay starts once
   * the consumers receive, so that their queues exist when it sends, and stops after them, so that it can still send
   * what they published. If one part fails, the others stop, and this rejects with its error.
   */
  run(signal?: AbortSignal): Promise<void>;
  /**
   * Starts all consumers, then the relay, so that the queues exist when it sends. Resolves to true when all of them
   * run, and to false if `stop` or `close` was called first. Rejects with the first error that no retry can resolve.
   * You need not await it: then telemetry reports the error, the other parts go on, and `stop` rejects with it. Throws
   * `already-started` if a consumer runs already.
   */
  start(): Promise<boolean>;
  /** Stops the consumers, then the relay, and waits for both. */
  stop(): Promise<void>;
  /**
   * Reports the problems of all boxes (see `Store.health`), of the connections to the broker, and of handlers that do
   * not end.
   */
  health(options?: HealthOptionsOf<S>): Promise<Health<ProblemOf<S> | TransportProblem | HandlerProblem>>;
  /**
   * Stops everything and closes the sender. Afterwards, nothing of Postbox keeps the process alive. End what you opened
   * yourself, such as the pool, after this.
   */
  close(): Promise<void>;
  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}
