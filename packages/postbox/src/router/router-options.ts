import { type Backoff, exponential, reliable } from "../backoff.js";
import { ConfigError, PostboxError } from "../errors.js";
import { type Runtime, runtimeWith } from "../internal/runtime.js";
import { type Codec, codecList } from "../message/codec.js";
import { callback, checkOptions, count, notNegative, object, oneOf, positive } from "../options.js";
import type { Telemetry } from "../telemetry/events.js";
import { telling } from "../telemetry/telling.js";
import type { AckStrategyName } from "./ack-strategy.js";
import type { SessionOptions } from "./session.js";

/** Options of `createRouter`. */
export interface RouterOptions {
  /**
   * When to acknowledge a message. `on-success`: when its handler and all middleware have succeeded. `manual`: the
   * handler decides, through `context.delivery`. `forward`: when the broker has confirmed all outputs of the handler;
   * the next message is handled meanwhile. Defaults to `on-success`.
   */
  readonly ack?: AckStrategyName;
  /**
   * How many messages are handled at a time; those of one key never are. Each handler behind `transaction(store)` takes
   * a connection. Give the pool more connections than this: a handler that needs a second one waits for ever otherwise.
   * Defaults to 5.
   */
  readonly concurrency?: number;
  /**
   * How many more messages of each stream (partition) of the receiver wait here for a place or for their key. If all of
   * them wait for one key, no other message of that stream is taken. Defaults to 100.
   */
  readonly maxBuffered?: number;
  /** Total tries of a message before it is parked. Defaults to 10. */
  readonly maxAttempts?: number;
  /** The delay between tries. Defaults to `exponential()`. */
  readonly backoff?: Backoff;
  /**
   * What to do with a message that has no handler here. `park`: it is delivered again, to any instance of the consumer,
   * and parked after `unknownWaitMs`. `ignore`: it is acknowledged, even if a newer instance has a handler. Defaults to
   * `park`; with a receiver of whole topics (`selects: "topic"`), to `ignore`.
   */
  readonly onUnknownType?: "park" | "ignore";
  /**
   * With `onUnknownType: "park"`, how long a message waits for an instance with a handler. The time counts from its
   * publication, or from when this run first received the type, whichever is later. Make it longer than a rolling
   * deployment. The message is retried with growing delays and spends no attempts; 0 parks it at once. Defaults to
   * 900,000.
   */
  readonly unknownWaitMs?: number;
  /** How long handlers may run after a stop begins; then their messages are given back. Defaults to 30,000. */
  readonly shutdownTimeoutMs?: number;
  /**
   * A handler that has run for this long is reported as `delivery.slow`, and is a problem of `messaging.health()`.
   * Nothing ends it. Defaults to 60,000.
   */
  readonly slowAfterMs?: number;
  /** In addition to JSON and bytes, which are built in. Defaults to none. */
  readonly codecs?: readonly Codec[];
  /** Receives this router's events. Defaults to warnings and errors on the console; `silent` turns that off. */
  readonly telemetry?: Telemetry;
  /** @experimental Time, randomness and failpoints. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

export const routerRules = {
  ack: oneOf("on-success", "manual", "forward"),
  concurrency: count,
  maxBuffered: count,
  maxAttempts: count,
  backoff: callback,
  onUnknownType: oneOf("park", "ignore"),
  unknownWaitMs: notNegative,
  shutdownTimeoutMs: positive,
  slowAfterMs: positive,
  codecs: codecList,
  telemetry: callback,
  runtime: object,
};

/** What all runs of a router share. The policy for unknown types depends on the receiver. */
export type RunOptions = Omit<SessionOptions, "onUnknownType" | "keeper" | "settles">;

/** Checks the options and fills in the defaults. */
export function runOptionsOf(consumer: string, options: RouterOptions): RunOptions {
  if (typeof consumer !== "string" || consumer === "") {
    throw new ConfigError("option-invalid", "createRouter: give the consumer's name, such as createRouter('billing')");
  }
  checkOptions("createRouter", options, routerRules);
  const telemetry = telling(options.telemetry);
  return {
    consumer,
    ack: options.ack ?? "on-success",
    concurrency: options.concurrency ?? 5,
    maxBuffered: options.maxBuffered ?? 100,
    maxAttempts: options.maxAttempts ?? 10,
    backoff: reliable(options.backoff ?? exponential(), (error) =>
      telemetry({ name: "router.failed", consumer, error: PostboxError.from(error) }),
    ),
    unknownWaitMs: options.unknownWaitMs ?? 900_000,
    shutdownTimeoutMs: options.shutdownTimeoutMs ?? 30_000,
    slowAfterMs: options.slowAfterMs ?? 60_000,
    telemetry,
    runtime: runtimeWith(options.runtime),
  };
}
