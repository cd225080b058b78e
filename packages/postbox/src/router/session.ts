import { setMaxListeners } from "node:events";
import type { Backoff } from "../backoff.js";
import { PostboxError } from "../errors.js";
import { type Crowd, createCrowd } from "../internal/crowd.js";
import { type Runtime, sleep } from "../internal/runtime.js";
import { soundError } from "../internal/sound-error.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Delivery } from "../transport.js";
import { type Acking, type AckStrategyName, ackStrategies } from "./ack-strategy.js";
import { createFailures, type Failures } from "./failures.js";
import type { Handle, Handled } from "./handle.js";
import { createHandleInPlace, type HandleInPlace } from "./handle-in-place.js";
import type { Keeper } from "./keeper.js";
import { createKeyQueue, type KeyQueue } from "./key-queue.js";
import { createPlaces, type Places, type SlowHandler } from "./places.js";
import { createRevocations, type Revocations } from "./revocations.js";
import { endRevoked, type TrackedDelivery, trackDelivery } from "./tracked-delivery.js";

export interface SessionOptions {
  readonly consumer: string;
  readonly ack: AckStrategyName;
  readonly concurrency: number;
  readonly maxBuffered: number;
  readonly maxAttempts: number;
  readonly backoff: Backoff;
  readonly onUnknownType: "park" | "ignore";
  readonly unknownWaitMs: number;
  readonly shutdownTimeoutMs: number;
  readonly slowAfterMs: number;
  /** Takes over messages that fail. Defaults to none: they stay with the broker. */
  readonly keeper?: Keeper;
  /** The receiver's ability of the same name; `each` if it sets aside what no inbox takes. Defaults to `each`. */
  readonly settles?: "each" | "in-order";
  readonly telemetry: Telemetry;
  readonly runtime: Runtime;
}

interface Task {
  readonly key: string | undefined;
  readonly stream: string | undefined;
  readonly isKept: boolean;
  readonly delivery: TrackedDelivery;
  run(): Promise<void>;
}

/** After the deadline of a stop, a broker has this long to take a message back, and then as long to end. */
export const answerMs = 5000;

/** One run of a router, from the first delivery to the last settlement. Its methods are bound. */
export class Session {
  readonly #handles: ReadonlyMap<string, Handle>;
  readonly #options: SessionOptions;
  readonly #queue: KeyQueue<Task>;
  readonly #places: Places;
  readonly #outstanding: Crowd<TrackedDelivery> = createCrowd();
  readonly #stopping = new AbortController();
  readonly #giveUp = new AbortController();
  readonly #failures: Failures;
  readonly #handleInPlace: HandleInPlace;
  readonly #revocations: Revocations;
  readonly #done = (delivery: TrackedDelivery) => this.#settled(delivery);
  #closing: Promise<void> | undefined;
  #emptied = () => {};

  constructor(handles: ReadonlyMap<string, Handle>, options: SessionOptions) {
    this.#handles = handles;
    this.#options = options;
    this.#queue = createKeyQueue<Task>(options.concurrency, options.maxBuffered);
    this.#places = createPlaces(options);
    const signals = { stopping: this.#stopping.signal, giveUp: this.#giveUp.signal };
    this.#failures = createFailures([...handles.keys()], options, signals);
    this.#handleInPlace = createHandleInPlace(options, signals.stopping);
    void this.#places.watch(signals.stopping);
    // Each message that is handled listens, and handlers may too: Node.js would warn about a leak.
    setMaxListeners(0, signals.giveUp);
    // Tasks that have not started are dropped. A running handler gets the signal, and its result is ignored, because
    // its delivery is marked.
    this.#revocations = createRevocations(signals.giveUp, (signal) => {
      for (const { delivery } of this.#queue.take((task) => task.delivery.signal === signal)) void delivery.release();
    });
  }

  /** Handlers that have run for longer than `slowAfterMs`, the oldest first. */
  get slowHandlers(): readonly SlowHandler[] {
    return this.#places.slow();
  }

  /** Takes one delivery. Resolves when its stream has room for the next one. */
  readonly deliver = (raw: Delivery): Promise<void> => {
    const { message, stream, signal } = raw;
    const { consumer, telemetry } = this.#options;
    // It was revoked while it waited to be delivered here.
    if (signal?.aborted) return endRevoked(raw, this.#options);
    if (this.#closing !== undefined) {
      // A stop is no failure: a delivery that cannot be given back is delivered again anyway.
      return raw.release().catch((error) => {
        if (!signal?.aborted) telemetry({ name: "router.failed", consumer, error: PostboxError.from(error) });
      });
    }
    const delivery = trackDelivery(raw, this.#options, this.#done);
    this.#outstanding.add(delivery);
    if (signal !== undefined) this.#revocations.watch(signal);
    const isKept = raw.kept !== undefined;
    return this.#queue.push({ key: message.key, stream, isKept, delivery, run: () => this.#handleOne(delivery) });
  };

  /** Takes no more deliveries, waits for running handlers until the deadline, and gives back the rest. Idempotent. */
  readonly close = (): Promise<void> => {
    this.#closing ??= this.#drain();
    return this.#closing;
  };

  #settled(delivery: TrackedDelivery): void {
    this.#outstanding.remove(delivery);
    if (this.#outstanding.size === 0) this.#emptied();
  }

  /** Never rejects. This runs for every message, and each promise costs more than all else here, so it makes few. */
  async #handleOne(delivery: TrackedDelivery): Promise<void> {
    const { message, attempt } = delivery;
    const { consumer, runtime, telemetry } = this.#options;
    let place: number | undefined;
    try {
      telemetry({ name: "delivery.received", consumer, id: message.id, attempt });
      if (runtime.failpoint) await runtime.failpoint("router.received");
      const handle = this.#handles.get(message.type);
      if (handle === undefined) return await this.#failures.unknownType(delivery);
      const acking = ackStrategies[this.#options.ack](delivery);
      const context = this.#contextOf(delivery, acking);
      const startedAt = runtime.monotonic();
      const taken = this.#places.take(message, startedAt);
      place = taken;
      let running = handle(context);
      let settling: Promise<void>;
      try {
        settling = this.#succeeded(delivery, acking, await running.result, startedAt);
      } catch (thrown) {
        const again = await this.#handleInPlace(
          delivery,
          {
            handle: () => {
              this.#places.restart(taken, runtime.monotonic());
              return handle(context);
            },
            rest: () => this.#places.restart(taken),
          },
          running,
          soundError(thrown),
        );
        running = again.running;
        settling =
          "error" in again.outcome
            ? this.#failures.settle(delivery, again.outcome.error)
            : this.#succeeded(delivery, acking, again.outcome.handled, startedAt);
      }
      if (acking.holdsSlot) await settling;
      // A handler that was given up on may still run. Until it ends, it keeps its place, and the next message of its
      // key waits.
      const ending = running.ended();
      if (ending !== undefined) await ending;
    } catch (thrown) {
      await this.#failures.giveBack(delivery, thrown);
    } finally {
      if (place !== undefined) this.#places.leave(place);
    }
  }

  #contextOf(delivery: TrackedDelivery, acking: Acking) {
    const { message, attempt, origin, kept } = delivery;
    const { consumer, runtime, telemetry } = this.#options;
    return {
      message,
      attempt,
      consumer,
      signal: this.#signalFor(delivery),
      telemetry,
      runtime,
      ...(origin && { origin }),
      ...(kept && { kept }),
      ...acking.context,
    };
  }

  /**
   * With an inbox, a handler may go on and commit after the broker revoked its message: the inbox skips the redelivery.
   */
  #signalFor({ signal }: TrackedDelivery): AbortSignal {
    const isOurs = signal === undefined || this.#options.keeper !== undefined;
    return isOurs ? this.#giveUp.signal : this.#revocations.handlerSignal(signal);
  }

  /** Never rejects. */
  #succeeded(delivery: TrackedDelivery, acking: Acking, handled: Handled, startedAt: number): Promise<void> {
    if (handled === "by-handler") {
      const { consumer, runtime, telemetry } = this.#options;
      const durationMs = Math.max(0, runtime.monotonic() - startedAt);
      telemetry({ name: "delivery.handled", consumer, id: delivery.message.id, durationMs });
    }
    return acking.succeeded(handled).catch((error) => this.#failures.settle(delivery, error));
  }

  async #drain(): Promise<void> {
    const { consumer, telemetry, shutdownTimeoutMs } = this.#options;
    this.#stopping.abort();
    for (const task of this.#queue.take()) void task.delivery.release();
    await this.#within(shutdownTimeoutMs, this.#allSettled());
    const late = [...this.#outstanding].map(({ message }) => message.id);
    if (late.length > 0) {
      const error = abandoned(consumer, late.length, shutdownTimeoutMs);
      telemetry({ name: "router.abandoned", consumer, ids: late.slice(0, 100), error });
    }
    this.#giveUp.abort(new PostboxError("stop-timeout", `${consumer} stopped before this handler was done`));
    await this.#within(answerMs, Promise.all([...this.#outstanding].map((delivery) => delivery.release())));
    this.#revocations.end();
  }

  async #allSettled(): Promise<void> {
    await this.#queue.idle();
    // Including messages that a handler left to be settled later.
    if (this.#outstanding.size > 0) await new Promise<void>((resolve) => (this.#emptied = resolve));
  }

  /** Resolves with `work`, or after `ms`. */
  async #within(ms: number, work: Promise<unknown>): Promise<void> {
    const finished = new AbortController();
    await Promise.race([work, sleep(this.#options.runtime, ms, finished.signal)]);
    finished.abort();
  }
}

function abandoned(consumer: string, count: number, afterMs: number): PostboxError {
  return new PostboxError(
    "stop-timeout",
    `${consumer} stopped while ${count === 1 ? "a handler was" : `${count} handlers were`} still running after ` +
      `${afterMs} ms; their messages are delivered again. Raise shutdownTimeoutMs, or let handlers end when ` +
      "context.signal is aborted",
  );
}
