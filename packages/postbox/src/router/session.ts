import { setMaxListeners } from "node:events";
import type { Backoff } from "../backoff.js";
import { ConfigError, PermanentError, PostboxError } from "../errors.js";
import { createCrowd } from "../internal/crowd.js";
import { type Runtime, sleep } from "../internal/runtime.js";
import { soundError } from "../internal/sound-error.js";
import { createTurns } from "../internal/turns.js";
import { whenAborted } from "../internal/when-aborted.js";
import { aboutMessage, type Telemetry } from "../telemetry/events.js";
import type { Delivery } from "../transport.js";
import { type Acking, type AckStrategyName, ackStrategies } from "./ack-strategy.js";
import type { Handle, Handled, Running } from "./handle.js";
import type { Keeper, Verdict } from "./keeper.js";
import { createKeyQueue } from "./key-queue.js";
import { isNobodysFault } from "./nobodys-fault.js";
import { createRevocations } from "./revocations.js";
import { endRevoked, type TrackedDelivery, trackDelivery } from "./tracked-delivery.js";
import { createUnknownTypes } from "./unknown-types.js";

export interface SessionOptions {
  readonly consumer: string;
  readonly ack: AckStrategyName;
  readonly concurrency: number;
  readonly maxBuffered: number;
  readonly maxAttempts: number;
  readonly backoff: Backoff;
  readonly unknown: "park" | "ignore";
  readonly unknownWaitMs: number;
  readonly shutdownTimeoutMs: number;
  /** Takes over what fails. Defaults to nobody: it stays the broker's. */
  readonly keeper?: Keeper;
  /** What the receiver declares; see there. Defaults to `each`. */
  readonly settles?: "each" | "in-order";
  readonly telemetry: Telemetry;
  readonly runtime: Runtime;
}

interface Task {
  readonly key: string | undefined;
  readonly stream: string | undefined;
  readonly delivery: TrackedDelivery;
  run(): Promise<void>;
}

type Outcome = { readonly handled: Handled } | { readonly error: unknown };

/** After the deadline of a stop, a broker still has this long to take a message back, and then to end. */
export const answerMs = 5000;

/** One run of a router: from the first delivery to the last settlement. */
export interface Session {
  deliver(delivery: Delivery): Promise<void>;
  /** Takes nothing more, finishes what runs within the deadline, gives back the rest. Idempotent. */
  close(): Promise<void>;
}

export function createSession(handles: ReadonlyMap<string, Handle>, options: SessionOptions): Session {
  const { consumer, runtime, telemetry } = options;
  const queue = createKeyQueue<Task>(options.concurrency, options.maxBuffered);
  const outstanding = createCrowd<TrackedDelivery>();
  const stopping = new AbortController();
  const giveUp = new AbortController();
  const suspects = createTurns();
  const unknownTypes = createUnknownTypes({
    ...options,
    handled: [...handles.keys()],
    waitMs: options.unknownWaitMs,
  });
  // As many listen as messages are handled at once, and more in handlers: no sign of a leak.
  setMaxListeners(0, giveUp.signal);
  // What has not been started is dropped. What runs hears of it by its signal, and its result by the delivery's own state.
  const revocations = createRevocations(giveUp.signal, (signal) => {
    for (const { delivery } of queue.take((task) => task.delivery.signal === signal)) void delivery.release();
  });
  let closing: Promise<void> | undefined;
  let emptied = () => {};

  /** Never rejects. Each promise here is made for every message, and costs more than all else: there are as few as can be. */
  async function handleOne(delivery: TrackedDelivery): Promise<void> {
    const { message, attempt } = delivery;
    try {
      telemetry({ name: "delivery.received", consumer, id: message.id, attempt });
      if (runtime.failpoint) await runtime.failpoint("router.received");
      const handle = handles.get(message.type);
      if (handle === undefined) return await unknownType(delivery);
      const acking = ackStrategies[options.ack](delivery);
      const { origin, kept } = delivery;
      const context = {
        message,
        attempt,
        consumer,
        signal: signalFor(delivery),
        telemetry,
        runtime,
        ...(origin && { origin }),
        ...(kept && { kept }),
        ...acking.context,
      };
      const startedAt = runtime.monotonic();
      let running = handle(context);
      let settling: Promise<void>;
      try {
        settling = succeeded(delivery, acking, await running.result, startedAt);
      } catch (thrown) {
        const again = await handleAgain(delivery, () => handle(context), running, soundError(thrown));
        running = again.running;
        settling =
          "error" in again.outcome
            ? settleFailed(delivery, again.outcome.error)
            : succeeded(delivery, acking, again.outcome.handled, startedAt);
      }
      if (acking.holdsSlot) await settling;
      // Given up on is not ended: as long as anything runs, it keeps its place, and the next of its key waits.
      const ending = running.ended();
      if (ending !== undefined) await ending;
    } catch (thrown) {
      await giveBack(delivery, thrown);
    }
  }

  /** With an inbox, work that goes on after the broker took its message back may commit: the inbox skips the redelivery. */
  function signalFor({ signal }: TrackedDelivery): AbortSignal {
    return signal === undefined || options.keeper !== undefined ? giveUp.signal : revocations.handlerSignal(signal);
  }

  /**
   * What becomes of a message whose handling has failed. A store that cannot be reached is no fault of any message: the message keeps its
   * place meanwhile, and is handled again. So is one that failed for another reason than itself, if its broker cannot deliver it later.
   * But a message that was being handled each time the store went away may be the reason: such ones are tried one at a time, and not for
   * ever.
   */
  async function handleAgain(
    delivery: TrackedDelivery,
    handle: () => Running<Handled>,
    running: Running<Handled>,
    error: unknown,
  ): Promise<{ readonly running: Running<Handled>; readonly outcome: Outcome }> {
    for (let failures = 1, losses = 0; ; failures++) {
      if (stopping.signal.aborted || delivery.signal?.aborted || !keepsPlace(delivery, error)) {
        return { running, outcome: { error } };
      }
      if (error.code === "transaction-lost") losses++;
      if (losses === mostLosses) return { running, outcome: { error: suspect(error) } };
      const retryInMs = options.backoff(failures, runtime.random);
      if (isAway(error)) telemetry({ name: "router.failed", consumer, error });
      else tellRetry(delivery, retryInMs, error);
      await pause(delivery, retryInMs);
      // Never twice at once.
      await running.ended();
      const leave = losses > 0 ? await suspects.enter() : () => {};
      running = handle();
      try {
        return { running, outcome: { handled: await running.result } };
      } catch (thrown) {
        error = soundError(thrown);
      } finally {
        leave();
      }
    }
  }

  /** Whether the broker can deliver it again later, and park it. What comes out of a box always can be. */
  function settlesAlone({ kept }: TrackedDelivery): boolean {
    return options.settles !== "in-order" || kept !== undefined;
  }

  function keepsPlace(delivery: TrackedDelivery, error: unknown): error is PostboxError {
    return isAway(error) || (!settlesAlone(delivery) && isNobodysFault(error));
  }

  function tellRetry({ message, attempt }: TrackedDelivery, retryInMs: number, error: Error): void {
    telemetry({ name: "delivery.retried", consumer, ...aboutMessage(message), attempt, retryInMs, error });
  }

  /** Until the time has passed, the router stops, or the broker takes the delivery back. */
  async function pause({ signal }: TrackedDelivery, ms: number): Promise<void> {
    const over = new AbortController();
    const forget = [stopping.signal, ...(signal ? [signal] : [])].map((each) => whenAborted(each, () => over.abort()));
    await sleep(runtime, ms, over.signal);
    for (const each of forget) each();
  }

  /** Never rejects. */
  function succeeded(delivery: TrackedDelivery, acking: Acking, handled: Handled, startedAt: number): Promise<void> {
    if (handled === "by-handler") {
      const durationMs = Math.max(0, runtime.monotonic() - startedAt);
      telemetry({ name: "delivery.handled", consumer, id: delivery.message.id, durationMs });
    }
    return acking.succeeded(handled).catch((error) => settleFailed(delivery, error));
  }

  /** Never rejects. */
  function settleFailed(delivery: TrackedDelivery, error: unknown): Promise<void> {
    return failed(delivery, error).catch((thrown) => giveBack(delivery, thrown));
  }

  async function unknownType(delivery: TrackedDelivery): Promise<void> {
    const { id, type } = delivery.message;
    if (options.unknown === "ignore") {
      telemetry({ name: "delivery.ignored", consumer, id, type });
      return delivery.ack();
    }
    const retryInMs = unknownTypes.retryInMs(delivery.message);
    if (retryInMs === undefined) {
      const text =
        `${consumer} has no handler for ${type}, and no other instance handled it within ${options.unknownWaitMs} ms; ` +
        'register one with .on(...), or choose unknown: "ignore"';
      return settleAs(delivery, { to: "park", error: new PermanentError(text, { code: "no-handler" }) });
    }
    if (stopping.signal.aborted) return delivery.release();
    const text = `this instance of ${consumer} has no handler for ${type}, and leaves it to another one; if none has one, register it with .on(...)`;
    const error = new PostboxError("no-handler", text);
    // Past the keeper, if the broker can: it brings it to any instance, a box only to the one that owns its lane.
    return settlesAlone(delivery)
      ? delivery.retry(retryInMs, error)
      : settleAs(delivery, { to: "retry", retryInMs, error });
  }

  async function failed(delivery: TrackedDelivery, thrown: unknown): Promise<void> {
    const error = soundError(thrown);
    if (delivery.settled) {
      // Its handler had settled it by hand: too late to decide anything, but not to tell. What a stop gave back has been told.
      if (!giveUp.signal.aborted) telemetry({ name: "router.failed", consumer, error: PostboxError.from(error) });
      return;
    }
    // Its result comes too late: the broker delivers it again.
    if (delivery.signal?.aborted) return delivery.release();
    const retryInMs = options.backoff(delivery.attempt, runtime.random);
    // Nothing was wrong with the message: no attempt is spent, wherever they are counted.
    if (isNobodysFault(error)) {
      if (stopping.signal.aborted) return delivery.release();
      if (settlesAlone(delivery)) return delivery.retry(retryInMs, error);
    }
    if (isHopeless(error)) return settleAs(delivery, { to: "park", error });
    if (delivery.attempt >= options.maxAttempts) {
      const text = `${delivery.attempt} attempts failed, the last with: ${error.message}`;
      return settleAs(delivery, { to: "park", error: new PostboxError("attempts-spent", text, { cause: error }) });
    }
    return settleAs(delivery, { to: "retry", retryInMs, error });
  }

  /** Somebody may keep it: then the broker has done its part. */
  async function settleAs(delivery: TrackedDelivery, verdict: Verdict): Promise<void> {
    const taken = await options.keeper?.take(delivery, verdict, stopping.signal);
    if (taken === "known") {
      telemetry({ name: "delivery.skipped", consumer, id: delivery.message.id });
      return delivery.ack();
    }
    if (taken !== undefined) return delivery.ack(taken);
    if (!settlesAlone(delivery)) return holdUp(delivery, verdict.error);
    if (verdict.to === "park") return delivery.park(verdict.error);
    return delivery.retry(verdict.retryInMs, verdict.error);
  }

  /** Neither the inbox nor the broker can set it aside. Its stream waits for it, which is reported, so that it is not lost. */
  async function holdUp(delivery: TrackedDelivery, cause: Error): Promise<void> {
    const text =
      `message ${delivery.message.id} of ${consumer} failed, and neither its inbox nor its broker can set it aside: ${cause.message}; ` +
      "it is handled again, and what is behind it is not committed until then: mend its handler, or skip it at the broker";
    telemetry({ name: "router.failed", consumer, error: new PostboxError("permanent", text, { cause }) });
    await pause(delivery, options.backoff(options.maxAttempts, runtime.random));
    return delivery.release();
  }

  /** For what should not happen: a message must not stay unsettled for a fault of ours. */
  function giveBack(delivery: TrackedDelivery, thrown: unknown): Promise<void> {
    telemetry({ name: "router.failed", consumer, error: PostboxError.from(thrown) });
    return delivery.release();
  }

  async function drain(): Promise<void> {
    stopping.abort();
    for (const task of queue.take()) void task.delivery.release();
    const settled = (async () => {
      await queue.idle();
      // What a handler left to be settled later counts too.
      if (outstanding.size > 0) await new Promise<void>((resolve) => (emptied = resolve));
    })();
    await within(options.shutdownTimeoutMs, settled);
    const late = [...outstanding].map(({ message }) => message.id);
    if (late.length > 0)
      telemetry({ name: "router.abandoned", consumer, ids: late.slice(0, 100), error: abandoned(late) });
    giveUp.abort(new PostboxError("stop-timeout", `${consumer} stopped before this handler was done`));
    await within(answerMs, Promise.all([...outstanding].map((delivery) => delivery.release())));
    revocations.end();
  }

  function abandoned({ length }: readonly string[]): PostboxError {
    return new PostboxError(
      "stop-timeout",
      `${consumer} stopped while ${length === 1 ? "a handler was" : `${length} handlers were`} still running after ` +
        `${options.shutdownTimeoutMs} ms; their messages are delivered again. Raise shutdownTimeoutMs, or let handlers end when context.signal is aborted`,
    );
  }

  /** Resolves when `work` does, or else after `ms`. */
  async function within(ms: number, work: Promise<unknown>): Promise<void> {
    const finished = new AbortController();
    await Promise.race([work, sleep(runtime, ms, finished.signal)]);
    finished.abort();
  }

  return {
    deliver(raw) {
      const { message, stream, signal } = raw;
      // It was taken back while it waited to be handed over.
      if (signal?.aborted) return endRevoked(raw, options);
      if (closing !== undefined) {
        // Stopping is not a failure: what cannot be given back is delivered again anyway.
        return raw.release().catch((error) => {
          if (!signal?.aborted) telemetry({ name: "router.failed", consumer, error: PostboxError.from(error) });
        });
      }
      const delivery = trackDelivery(raw, options, (done) => {
        outstanding.remove(done);
        if (outstanding.size === 0) emptied();
      });
      outstanding.add(delivery);
      if (signal !== undefined) revocations.watch(signal);
      return queue.push({ key: message.key, stream, delivery, run: () => handleOne(delivery) });
    },
    close() {
      closing ??= drain();
      return closing;
    },
  };
}

/**
 * What is thrown for the same message in the same way every time: wrong use, and outputs that cannot be published. A handler that
 * ends its own transaction may commit a part of its work each time.
 */
const hopeless: ReadonlySet<string> = new Set([
  "transaction-ended",
  "data-invalid",
  "data-not-encodable",
  "content-type-unknown",
  "message-invalid",
  "message-too-large",
]);

/** How often the store may go away while a message is handled. */
const mostLosses = 4;

function isAway(error: unknown): error is PostboxError {
  return error instanceof PostboxError && (error.code === "store-unavailable" || error.code === "transaction-lost");
}

function suspect(error: PostboxError): PermanentError {
  const text = `the store went away ${mostLosses} times while this message was handled, the last time with: ${error.message}`;
  return new PermanentError(text, { code: "message-suspect", cause: error });
}

function isHopeless(error: Error): boolean {
  if (error instanceof PermanentError || error instanceof ConfigError) return true;
  return error instanceof PostboxError && hopeless.has(error.code);
}
