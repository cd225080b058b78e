import type { DataOut, EventDefinition, OlderTypesOf, TypesOf } from "../event/define-event.js";
import type { Receiver } from "../transport.js";
import type { BaseContext, ForwardAck, Outputs, PublishesOutputs, WithOutputs, WithoutOutputs } from "./context.js";
import type { AddsOf, Fits } from "./fits.js";
import type { AnyMiddleware } from "./middleware.js";
import type { SlowHandler } from "./places.js";

type Flat<T> = { [K in keyof T]: T[K] } & {};
type Extended<C, M> = Flat<Omit<C, keyof AddsOf<M>> & AddsOf<M>>;

/** What a handler may return: messages only if something publishes them. */
// biome-ignore-start lint/suspicious/noConfusingVoidType: a handler may return another function's void.
type Returns<C> = C extends WithOutputs
  ? void | Outputs
  : void | `what this handler returns is not published: ${WhyNot<C>}`;
// biome-ignore-end lint/suspicious/noConfusingVoidType: see above.
type WhyNot<C> =
  C extends WithoutOutputs<infer Why>
    ? Why
    : ".use(outboxOutputs(outbox)) or .use(publishOutputs(publisher)) before .on(...)";

/**
 * Handles one event; `data` is decoded and validated. If it resolves, the message is handled. A `PermanentError` parks
 * the message, any other error retries it.
 */
export type Handler<E, C> = (data: DataOut<E>, context: C) => Returns<C> | Promise<Returns<C>>;

/** The types that an event's handler takes, with a sentence for those that an upcaster adds. */
type HandledBy<E extends EventDefinition> = TypesOf<E> | `${E["type"]} takes ${OlderTypesOf<E>}`;
type Upcasts<Handled extends string, Type extends string> = Extract<Handled, `${string} takes ${Type}`>;

/** The event itself if a handler for it may be registered here, else a sentence. */
type MayHandle<C, Handled extends string, E extends EventDefinition> = E["type"] extends Handled
  ? [Upcasts<Handled, E["type"]>] extends [never]
    ? `${E["type"]} has a handler already; do both things in one handler`
    : `${Upcasts<Handled, E["type"]>} already, by its upcaster; keep one of them`
  : [Extract<OlderTypesOf<E>, Handled>] extends [never]
    ? C extends ForwardAck
      ? C extends PublishesOutputs
        ? E
        : 'ack: "forward" needs a publisher: .use(publishOutputs(publisher)) before .on(...)'
      : E
    : `${Extract<OlderTypesOf<E>, Handled>} has a handler already, and ${E["type"]} upcasts from it; keep one of them`;

/** Runs on a receiver: until a signal is aborted, or between `start` and `stop`. */
export interface RunsReceiver {
  /** The receiver of the current or the last run. */
  readonly receiver: Receiver | undefined;
  /** How many handlers may run at a time. */
  readonly concurrency: number;
  /** The handlers that have run for longer than `slowAfterMs` and still run, the oldest first. */
  readonly slowHandlers: readonly SlowHandler[];
  /**
   * Makes what the router needs at the broker, such as a queue bound to its events, and receives nothing. Messages that
   * are published afterwards wait there: call it before the publisher of a new event is deployed. Rejects if the broker
   * cannot be reached.
   */
  prepare(receiver: Receiver): Promise<void>;
  /**
   * Handles the receiver's messages until the signal is aborted. Then it takes no more messages, waits up to
   * `shutdownTimeoutMs` for running handlers, gives back the rest, and resolves. It never acknowledges what did not
   * commit. If the broker does not answer for some seconds after that, it rejects with `stop-timeout`.
   */
  run(receiver: Receiver, signal?: AbortSignal): Promise<void>;
  /**
   * Runs in the background. Resolves to true once it receives, however long that takes, and to false if `stop` was
   * called first. Rejects with an error that no retry can resolve. You need not await it: then telemetry reports the
   * error, and `stop` rejects with it; afterwards it can be started again. Throws `already-started` while it runs.
   */
  start(receiver: Receiver): Promise<boolean>;
  /** Stops what `start` began, and waits for it. */
  stop(): Promise<void>;
  /** The same as `stop`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Registers handlers. It changes and returns itself, so that chains and plain statements both work. */
export interface Handlers<C, Handled extends string = never> extends RunsReceiver {
  on<E extends EventDefinition>(
    event: MayHandle<C, Handled, E>,
    handler: Handler<E, C>,
  ): Handlers<C, Handled | HandledBy<E>>;
  /** Carries the types only. */
  readonly "~types"?: { readonly context: C; readonly handled: Handled };
}

/** `router.on` for one event, as a function: for code generators. */
export type Registration<E extends EventDefinition> = <C, Handled extends string>(
  router: Handlers<C, Handled>,
  handler: MayHandle<C, Handled, E> extends infer Sentence extends string ? Sentence : Handler<E, C>,
) => Handlers<C, Handled | HandledBy<E>>;

/** A typed router. Register middleware first, then handlers: what `on` returns has no `use`. */
export interface Router<C = BaseContext> extends Handlers<C> {
  use<M extends AnyMiddleware>(middleware: Fits<C, M>): Router<Extended<C, M>>;
}
