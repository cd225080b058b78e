import { type Backoff, exponential, reliable } from "../backoff.js";
import { ConfigError, PostboxError } from "../errors.js";
import type { EventDefinition } from "../event/define-event.js";
import type { OlderType } from "../event/upcast.js";
import { type Runtime, runtimeWith } from "../internal/runtime.js";
import { startStop } from "../internal/start-stop.js";
import { withTimeout } from "../internal/with-timeout.js";
import { type Codec, codecList, createCodecs } from "../message/codec.js";
import { callback, checkOptions, count, notNegative, object, oneOf, positive } from "../options.js";
import type { Telemetry } from "../telemetry/events.js";
import { telling } from "../telemetry/telling.js";
import type { Receiver } from "../transport.js";
import { checkAbilities } from "./abilities.js";
import type { AckStrategyName } from "./ack-strategy.js";
import type { BaseContext, ForwardAck, ManualAck } from "./context.js";
import { checkFits } from "./fits.js";
import { createHandle, type UntypedHandler } from "./handle.js";
import type { AnyMiddleware } from "./middleware.js";
import type { Router } from "./router.js";
import { answerMs, createSession, type SessionOptions } from "./session.js";

export interface RouterOptions {
  /**
   * When a message is acked. `on-success`: when its handler and all middleware have succeeded. `manual`: by the handler,
   * through `context.delivery`. `forward`: when everything that the handler returned is confirmed by the broker; the
   * next message is handled meanwhile. Defaults to `on-success`.
   */
  readonly ack?: AckStrategyName;
  /**
   * How many messages are handled at the same time; those of one key never are. Each handler behind `transaction(store)`
   * takes a connection: the pool must have more than this, or a handler that asks for another one waits for ever.
   * Defaults to 10.
   */
  readonly concurrency?: number;
  /**
   * How many more wait here for a free place or for their key, of each stream (partition) of the receiver. When they all wait for one
   * key, no other message of that stream is taken. Defaults to 100.
   */
  readonly maxBuffered?: number;
  /** Total tries of a message before it is parked. Defaults to 10. */
  readonly maxAttempts?: number;
  /** The delay between tries. Defaults to `exponential()`. */
  readonly backoff?: Backoff;
  /**
   * What becomes of a message that has no handler here. `park`: it is delivered again, to any instance of the consumer, and parked after
   * `unknownWaitMs`. `ignore`: it is acknowledged, and so is what only a newer instance handles. Defaults to `park`; on a receiver that
   * brings whole topics (`selects: "topic"`), to `ignore`.
   */
  readonly unknown?: "park" | "ignore";
  /**
   * With `unknown: "park"`, how long a message waits for an instance that handles its type, counted from when it was published, or from when
   * this run first received the type, if that was later. Make it longer than a rolling deployment. It waits with growing delays and spends
   * no attempts; 0 parks it at once. Defaults to 900,000.
   */
  readonly unknownWaitMs?: number;
  /** How long handlers may take to finish after a stop; then their messages are given back. Defaults to 30,000. */
  readonly shutdownTimeoutMs?: number;
  /** Beside JSON and bytes, which are built in. Defaults to none. */
  readonly codecs?: readonly Codec[];
  /** Listens to what happens here. Defaults to warnings and errors on the console; `silent` is nobody. */
  readonly telemetry?: Telemetry;
  /** @experimental Time, chance and failpoints. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

export const routerRules = {
  ack: oneOf("on-success", "manual", "forward"),
  concurrency: count,
  maxBuffered: count,
  maxAttempts: count,
  backoff: callback,
  unknown: oneOf("park", "ignore"),
  unknownWaitMs: notNegative,
  shutdownTimeoutMs: positive,
  codecs: codecList,
  telemetry: callback,
  runtime: object,
};

/** What handles a type: the handler of its event, or of the one that it is upcast to. */
interface Registered {
  readonly event: EventDefinition;
  readonly handler: UntypedHandler;
  readonly older?: OlderType;
}

/**
 * Makes a router: takes messages from a receiver and dispatches them by type to handlers, through middleware.
 * `consumer` names it towards brokers and the inbox: keep it stable, since both remember it.
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
  if (typeof consumer !== "string" || consumer === "") {
    throw new ConfigError("option-invalid", "createRouter: give the consumer's name, such as createRouter('billing')");
  }
  checkOptions("createRouter", options, routerRules);
  const telemetry = telling(options.telemetry);
  const sessionOptions: Omit<SessionOptions, "unknown"> = {
    consumer,
    ack: options.ack ?? "on-success",
    concurrency: options.concurrency ?? 10,
    maxBuffered: options.maxBuffered ?? 100,
    maxAttempts: options.maxAttempts ?? 10,
    backoff: reliable(options.backoff ?? exponential(), (error) =>
      telemetry({ name: "router.failed", consumer, error: PostboxError.from(error) }),
    ),
    unknownWaitMs: options.unknownWaitMs ?? 900_000,
    shutdownTimeoutMs: options.shutdownTimeoutMs ?? 30_000,
    telemetry,
    runtime: runtimeWith(options.runtime),
  };
  const codecs = createCodecs(options.codecs);
  const given = { "on-success": [], manual: ["delivery"], forward: ["forward"] }[sessionOptions.ack];
  const middleware: AnyMiddleware[] = [];
  const registered = new Map<string, Registered>();

  /** The one that it runs on, or ran on last: from then on nothing is registered any more. */
  let used: Receiver | undefined;

  /** Everything that can be known to be wrong before anything runs. */
  function check(receiver: Receiver): void {
    if (typeof receiver?.receive !== "function") {
      throw new ConfigError(
        "option-invalid",
        `router ${consumer}: give the receiver to run on, such as broker.receiver()`,
      );
    }
    if (registered.size === 0) {
      throw new ConfigError("no-handler", `router ${consumer} has no handlers; register them with .on(event, handler)`);
    }
    checkAbilities(consumer, receiver, middleware);
  }

  const events = () => [...registered.values()].map(({ event, older }) => older ?? event);

  async function run(signal: AbortSignal, ready: () => void, from: Receiver): Promise<void> {
    const handles = new Map(
      [...registered].map(([type, { event, handler, older }]) => [
        type,
        createHandle(event, handler, middleware, codecs, older),
      ]),
    );
    tellConstrained();
    const { settles, selects } = from;
    const unknown = options.unknown ?? (selects === "topic" ? "ignore" : "park");
    const keeper = middleware.find((each) => each.keeper !== undefined)?.keeper?.({ ...sessionOptions, unknown });
    const receiver = keeper?.over(from) ?? from;
    const session = createSession(handles, {
      ...sessionOptions,
      unknown,
      ...(keeper && { keeper }),
      ...(settles && { settles }),
    });
    let stop = () => {};
    const stopped = new Promise<void>((resolve) => {
      stop = () => resolve(session.close());
    });
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    try {
      const received = receiver.receive({ consumer, events: events(), deliver: session.deliver, ready }, signal);
      await Promise.race([received, stopped]);
      await withTimeout(
        sessionOptions.runtime,
        answerMs,
        () => hangs(receiver),
        () => received,
      );
    } catch (cause) {
      const error = PostboxError.from(cause);
      telemetry({ name: "router.failed", consumer, error });
      throw error;
    } finally {
      signal.removeEventListener("abort", stop);
      await session.close();
    }
  }

  function tellConstrained(): void {
    const { concurrency } = sessionOptions;
    const maxTransactions = Math.min(...middleware.map(({ store }) => store?.maxTransactions ?? concurrency));
    // A single one is a choice, as with PGlite, which has no more.
    if (maxTransactions >= concurrency || maxTransactions === 1) return;
    const text =
      `up to ${concurrency} handlers of ${consumer} run at a time, each in a transaction, and the pool has ${maxTransactions} connections ` +
      "for them and for everything else; make the pool larger, or set 'concurrency' below its size";
    const error = new PostboxError("option-invalid", text);
    telemetry({ name: "router.constrained", consumer, concurrency, maxTransactions, error });
  }

  function hangs(receiver: Receiver): PostboxError {
    return new PostboxError(
      "stop-timeout",
      `router ${consumer} has stopped, but its receiver ${receiver.name} did not end within ${answerMs} ms; ` +
        "what it has not settled is delivered again when its connection ends",
    );
  }

  const background = startStop(`router ${consumer}`, run);
  const router = {
    get receiver() {
      return used;
    },
    use(next: AnyMiddleware) {
      if (typeof next?.run !== "function" || !Array.isArray(next.needs)) {
        throw new ConfigError(
          "option-invalid",
          ".use(...) takes a middleware: call its factory, as in .use(inbox(store))",
        );
      }
      if (registered.size > 0) {
        throw new ConfigError("middleware-order", `.use(${next.name}()) after .on(...): register middleware first`);
      }
      checkFits(given, middleware, next);
      const other = next.keeper && middleware.find(({ keeper }) => keeper !== undefined);
      if (other !== undefined) {
        throw new ConfigError(
          "middleware-order",
          `.use(${next.name}()) beside .use(${other.name}()): one inbox is enough`,
        );
      }
      middleware.push(next);
      return router;
    },
    on(event: EventDefinition, handler: UntypedHandler) {
      if (typeof event?.validate !== "function" || typeof handler !== "function") {
        throw new ConfigError("option-invalid", ".on(event, handler) takes what defineEvent returned, and a function");
      }
      if (used !== undefined) {
        throw new ConfigError(
          "already-started",
          `router ${consumer} has run already; register ${event.type} before it does`,
        );
      }
      const taken = registered.get(event.type);
      if (taken !== undefined) {
        throw new ConfigError(
          "handler-exists",
          taken.older === undefined
            ? `${event.type} has a handler already; do both things in one handler`
            : `${taken.event.type} takes ${event.type} already, by its upcaster; keep one of them`,
        );
      }
      const other = event.upcasts.find(({ type }) => registered.has(type));
      if (other !== undefined) {
        throw new ConfigError(
          "handler-exists",
          `${other.type} has a handler already, and ${event.type} upcasts from it; keep one of them`,
        );
      }
      if (sessionOptions.ack === "forward" && !middleware.some(({ adds }) => adds.includes("published"))) {
        throw new ConfigError(
          "middleware-order",
          'ack: "forward" needs somebody to publish: .use(publishOutputs(publisher)) before .on(...)',
        );
      }
      registered.set(event.type, { event, handler });
      for (const older of event.upcasts) registered.set(older.type, { event, handler, older });
      return router;
    },
    async prepare(receiver: Receiver) {
      check(receiver);
      await receiver.prepare?.({ consumer, events: events() });
    },
    async run(receiver: Receiver, signal: AbortSignal = new AbortController().signal) {
      check(receiver);
      used = receiver;
      await run(signal, () => {}, receiver);
    },
    start(receiver: Receiver) {
      check(receiver);
      used = receiver;
      return background.start(receiver);
    },
    stop: () => background.stop(),
    [Symbol.asyncDispose]: () => background.stop(),
  };
  return router;
}
