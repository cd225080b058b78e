import { ConfigError, PostboxError } from "../errors.js";
import type { EventDefinition } from "../event/define-event.js";
import { type StartStop, startStop } from "../internal/start-stop.js";
import { withTimeout } from "../internal/with-timeout.js";
import { type Codecs, createCodecs } from "../message/codec.js";
import type { Receiver } from "../transport.js";
import type { BaseContext, ForwardAck, ManualAck } from "./context.js";
import type { UntypedHandler } from "./handle.js";
import { countHandlers, type Shortage } from "./handlers-at-once.js";
import type { AnyMiddleware } from "./middleware.js";
import type { SlowHandler } from "./places.js";
import { Registry } from "./registry.js";
import type { Router } from "./router.js";
import { type RouterOptions, type RunOptions, runOptionsOf } from "./router-options.js";
import { answerMs, Session } from "./session.js";

/**
 * Makes a router, which dispatches the messages of a receiver to handlers by type, through middleware. `consumer`
 * identifies it to brokers and to the inbox. Keep the name stable, since both remember it.
 *
 * @example
 * ```ts
 * const router = createRouter("billing")
 *   .use(transaction(store))
 *   .use(inbox(store))
 *   .on(OrderPlaced, async (order, { tx }) => {
 *     await tx.query("INSERT INTO invoices (order_id) VALUES ($1)", [order.orderId]);
 *   });
 * await router.start(receiver);
 * ```
 */
export function createRouter(
  consumer: string,
  options: RouterOptions & { readonly ack: "manual" },
): Router<BaseContext & ManualAck>;
export function createRouter(
  consumer: string,
  options: RouterOptions & { readonly ack: "forward" },
): Router<BaseContext & ForwardAck>;
export function createRouter(consumer: string, options?: RouterOptions): Router;
export function createRouter(consumer: string, options: RouterOptions = {}): unknown {
  return new UntypedRouter(consumer, options);
}

/**
 * A router without the types of its context. Its methods are bound, so that `router.stop` can be passed as a callback.
 */
class UntypedRouter {
  readonly #consumer: string;
  readonly #options: RouterOptions;
  readonly #runOptions: RunOptions;
  readonly #codecs: Codecs;
  readonly #registry: Registry;
  readonly #background: StartStop<[Receiver]>;
  /** The sessions of the current runs. */
  readonly #sessions = new Set<Session>();
  /** The receiver of the current or the last run. Once it is set, nothing can be registered any more. */
  #used: Receiver | undefined;

  constructor(consumer: string, options: RouterOptions) {
    this.#runOptions = runOptionsOf(consumer, options);
    this.#consumer = consumer;
    this.#options = options;
    this.#codecs = createCodecs(options.codecs);
    this.#registry = new Registry(consumer, this.#runOptions.ack);
    this.#background = startStop(`router ${consumer}`, (signal, ready, receiver: Receiver) =>
      this.#run(receiver, signal, ready),
    );
  }

  get receiver(): Receiver | undefined {
    return this.#used;
  }

  get concurrency(): number {
    return this.#runOptions.concurrency;
  }

  get slowHandlers(): readonly SlowHandler[] {
    return [...this.#sessions].flatMap(({ slowHandlers }) => slowHandlers);
  }

  readonly use = (next: AnyMiddleware): this => {
    this.#registry.use(next);
    return this;
  };

  readonly on = (event: EventDefinition, handler: UntypedHandler): this => {
    if (this.#used !== undefined) {
      throw new ConfigError(
        "already-started",
        `router ${this.#consumer} has run already; register ${event?.type} before it does`,
      );
    }
    this.#registry.on(event, handler);
    return this;
  };

  readonly prepare = async (receiver: Receiver): Promise<void> => {
    this.#registry.check(receiver);
    await receiver.prepare?.({ consumer: this.#consumer, events: this.#registry.events() });
  };

  readonly run = async (receiver: Receiver, signal: AbortSignal = new AbortController().signal): Promise<void> => {
    this.#registry.check(receiver);
    this.#used = receiver;
    await this.#run(receiver, signal, () => {});
  };

  readonly start = (receiver: Receiver): Promise<boolean> => {
    this.#registry.check(receiver);
    this.#used = receiver;
    return this.#background.start(receiver);
  };

  readonly stop = (): Promise<void> => {
    return this.#background.stop();
  };

  [Symbol.asyncDispose](): Promise<void> {
    return this.#background.stop();
  }

  async #run(from: Receiver, signal: AbortSignal, ready: () => void): Promise<void> {
    const { receiver, session } = this.#sessionOn(from);
    this.#sessions.add(session);
    const { concurrency } = this.#runOptions;
    const { shortage, end } = countHandlers(this.#consumer, concurrency, this.#registry.middleware);
    if (shortage !== undefined) this.#tellConstrained(shortage);
    if (from.splitsKeys && this.#registry.middleware.some(({ storesFirst }) => storesFirst)) this.#tellUnordered(from);
    let stop = () => {};
    const stopped = new Promise<void>((resolve) => {
      stop = () => resolve(session.close());
    });
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    try {
      const received = receiver.receive(
        {
          consumer: this.#consumer,
          events: this.#registry.events(),
          deliver: session.deliver,
          ready,
        },
        signal,
      );
      await Promise.race([received, stopped]);
      await withTimeout(
        this.#runOptions.runtime,
        answerMs,
        () => this.#hangs(receiver),
        () => received,
      );
    } catch (cause) {
      const error = PostboxError.from(cause);
      this.#runOptions.telemetry({ name: "router.failed", consumer: this.#consumer, error });
      throw error;
    } finally {
      signal.removeEventListener("abort", stop);
      await session.close().finally(end);
      this.#sessions.delete(session);
    }
  }

  /** A session for one run, and the receiver of that run, which is the keeper's if there is one. */
  #sessionOn(from: Receiver): { readonly receiver: Receiver; readonly session: Session } {
    const { selects, setsAside = false } = from;
    const onUnknownType = this.#options.onUnknownType ?? (selects === "topic" ? "ignore" : "park");
    const runOptions = { ...this.#runOptions, onUnknownType };
    const keeper = this.#registry.middleware.find((each) => each.keeper !== undefined)?.keeper?.(runOptions);
    // With an inbox, a failure goes to the database, and its stream goes on.
    const settles = setsAside && keeper === undefined ? "each" : from.settles;
    const session = new Session(this.#registry.handles(this.#codecs), {
      ...runOptions,
      ...(keeper && { keeper }),
      ...(settles && { settles }),
    });
    return { receiver: keeper?.over(from) ?? from, session };
  }

  #tellConstrained({ consumers, concurrency, maxTransactions }: Shortage): void {
    const { consumer, telemetry } = this.#runOptions;
    const text =
      `up to ${concurrency} handlers of ${consumers.join(", ")} run at a time, each in a transaction, and the pool ` +
      `has ${maxTransactions} ` +
      `${maxTransactions === 1 ? "connection" : "connections"} for them and for everything else, such as requests; ` +
      "make the pool larger, " +
      "or lower 'concurrency' until all together leave some";
    const error = new PostboxError("option-invalid", text);
    telemetry({ name: "router.constrained", consumer, consumers, concurrency, maxTransactions, error });
  }

  #tellUnordered({ name }: Receiver): void {
    const { consumer, telemetry } = this.#runOptions;
    const text =
      `several processes of ${consumer} may receive messages of one key from ${name} at the same time, and its ` +
      "durable inbox keeps the order in which they were stored; give the receiver singleActiveConsumer: true, so " +
      "that one process receives at a time, or false if the order of effects does not matter";
    telemetry({ name: "router.unordered", consumer, error: new PostboxError("option-invalid", text) });
  }

  #hangs(receiver: Receiver): PostboxError {
    return new PostboxError(
      "stop-timeout",
      `router ${this.#consumer} has stopped, but its receiver ${receiver.name} did not end within ${answerMs} ms; ` +
        "what it has not settled is delivered again when its connection ends",
    );
  }
}
