import type { Health, HealthOptions } from "../health.js";
import type { InboxOptions } from "../inbox/inbox-options.js";
import type { OutboxPublisher, Outbox as OutboxWith } from "../outbox/outbox.js";
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
import type { IsolationLevel, Store } from "../store.js";
import type { HandlerProblem } from "./handler-problems.js";
import type { AnyStore } from "./messaging-options.js";
import type { TransportProblem } from "./transport-problems.js";
import type { NoOutbox } from "./without-outputs.js";

/** Whether a consumer remembers what it has handled: off, on (`inbox(store)`), or `durable` (`durableInbox(store)`). */
export type InboxMode = boolean | "durable";

/** What a router puts into the context for its way to ack. */
type Acking<Ack> = Ack extends "manual" ? ManualAck : Ack extends "forward" ? ForwardAck : unknown;
type AckFor<S> = [S] extends [AnyStore]
  ? Exclude<AckStrategyName, "manual"> | "with a store the ack comes after the commit, and is in nobody's hands"
  : AckStrategyName;
type ModeFor<S> = [S] extends [AnyStore] ? InboxMode : false | "the inbox needs a store: give createMessaging one";

/** What the health of a store takes and tells; a store may have limits and problems of its own. */
type HealthOptionsOf<S> = [S] extends [AnyStore] ? NonNullable<Parameters<S["health"]>[0]> : HealthOptions;
type ProblemOf<S> = S extends { health(): Promise<Health<infer Problem>> } ? Problem : never;

/** What becomes of outputs. Where a switch is only known at run time, they are allowed, and looked at then. */
type OutputsOf<Outbox extends boolean, Inbox> = [Outbox] extends [false]
  ? [Inbox] extends [false]
    ? PublishesOutputs
    : [Inbox] extends [true | "durable"]
      ? WithoutOutputs<NoOutbox>
      : WithOutputs
  : WithOutputs;
/** The handle of its transactions. Of a store that may be absent there is none. */
type TxOf<S> = [S] extends [AnyStore] ? (S extends Store<infer Tx> ? Tx : never) : never;
type InTransactionOf<S> = [S] extends [AnyStore] ? InTransaction<TxOf<S>> : unknown;
type Effective<Own, Inbox> = Exclude<Own, undefined> | (undefined extends Own ? Inbox : never);

export interface ConsumerOptions<
  Ack extends string = AckStrategyName,
  Inbox extends InboxMode | string | undefined = InboxMode,
  Outer extends BaseContext = BaseContext,
> extends Omit<RouterOptions, "ack"> {
  /** See `RouterOptions`; `manual` only without a store, and `forward` only where outbox and inbox are off. */
  readonly ack?: Ack;
  /** Switches the inbox of this consumer. Defaults to `inbox` of `createMessaging`. */
  readonly inbox?: Inbox;
  /** For its inbox. Defaults to `inboxOptions` of `createMessaging`. */
  readonly inboxOptions?: InboxOptions;
  /** Of the transaction around its handlers. Defaults to the database's own default. */
  readonly isolation?: IsolationLevel;
  /**
   * Middleware that must stand outside of the transaction: `(router) => router.use(timeout(5_000))`. Defaults to none.
   */
  readonly outside?: (router: Router<BaseContext & Acking<Ack>>) => Router<Outer>;
}

/** Only an outbox can cancel. */
type PublisherOf<Outbox extends boolean> = [Outbox] extends [true] ? OutboxPublisher : Publisher;

/**
 * The messaging of one service, with outbox and inbox on or off. The same code works with either: what a switch makes
 * impossible does not compile where the switch is a literal, and is refused at run time where it comes from elsewhere.
 */
export interface Messaging<
  S extends AnyStore | undefined = AnyStore | undefined,
  Outbox extends boolean = boolean,
  Inbox extends InboxMode = InboxMode,
> {
  /**
   * Outbox on: publishes into the transaction of the store that surrounds the caller; outside of one it rejects with
   * `transaction-missing`. Outbox off: straight to the broker, whether or not a transaction around it commits; then
   * there is no `cancel`, since nothing is scheduled.
   */
  readonly publisher: PublisherOf<Outbox>;
  /** Outbox on: a publisher into `tx`, for a transaction that the store did not open. Outbox off: `publisher`. */
  in(tx: TxOf<S>): PublisherOf<Outbox>;
  /** The outbox itself, such as for `createSchedule`; undefined while the outbox is off. */
  readonly outbox: Outbox extends true ? OutboxWith<TxOf<S>> : undefined;
  /** From the outbox to the broker; undefined while the outbox is off. */
  readonly relay: Outbox extends true ? Relay : undefined;
  /**
   * Makes a consumer: a router with everything that the switches ask for, so that `.on(event, handler)` comes next.
   * From the outside in: `correlation`, what `outside` adds, `publishOutputs` (both off), `transaction` (with a store),
   * the inbox, `outboxOutputs`. A second one of the same name is an error. Its name defaults to `group`, or `service`.
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
   * Makes what all consumers need at the broker, such as their queues with bindings, and receives nothing: see
   * `Router.prepare`. For a step of a deployment before the publishers of new events start.
   */
  prepare(): Promise<void>;
  /**
   * Runs all consumers, and the relay where there is one, until the signal is aborted or `stop` or `close` is called.
   * The relay begins when the consumers receive, so that their queues get what it sends; it ends after them, so that it
   * still sends what it can of theirs. One that fails ends the others, and this rejects with its error.
   */
  run(signal?: AbortSignal): Promise<void>;
  /**
   * Starts all consumers, and then the relay where there is one, so that their queues get what it sends. Resolves to
   * true when all of them run, and to false if `stop` or `close` was called first. Rejects as soon as one fails for
   * what no retry can mend. You need not await it: telemetry reports one that fails, the others go on, and `stop`
   * rejects with its error. Throws `already-started` while one of the consumers runs.
   */
  start(): Promise<boolean>;
  /** Stops the consumers, then the relay, and waits for them. */
  stop(): Promise<void>;
  /**
   * What is wrong: with all boxes of the store (see `Store.health`), the connections to the broker, and handlers that
   * do not end.
   */
  health(options?: HealthOptionsOf<S>): Promise<Health<ProblemOf<S> | TransportProblem | HandlerProblem>>;
  /**
   * Stops everything and closes the sender: after it nothing of this keeps the process alive. What you opened yourself,
   * such as the pool, is yours to end, after this.
   */
  close(): Promise<void>;
  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}
