import { reliable } from "../backoff.js";
import { ConfigError, PostboxError } from "../errors.js";
import { answered } from "../internal/answer.js";
import { following } from "../internal/following.js";
import { sleep } from "../internal/runtime.js";
import { unavailable } from "../internal/unavailable.js";
import { uuidv7Generator } from "../internal/uuidv7.js";
import type { Notifier } from "../notifier.js";
import type { Store } from "../store.js";
import { boundedBox } from "./bounded-box.js";
import type { DrainContext, DrainLoopOptions } from "./context.js";
import { Engine } from "./engine.js";
import { LeasedLanes } from "./owning/ownership.js";
import type { Target } from "./target.js";
import { listen } from "./upkeep/listener.js";
import { keepClean } from "./upkeep/retention.js";
import { keepSchedule } from "./upkeep/schedule.js";

/** Moves the rows of a box to a target: owns lanes, runs an engine on them, and does the upkeep of the box. */
export interface DrainLoop {
  /**
   * Runs until the signal is aborted and every row that was taken is settled. Concurrent runs share the lanes.
   * `reached` is called once the store has answered; until then, refused credentials reject instead of being retried.
   */
  run(target: Target, signal: AbortSignal, reached?: () => void): Promise<void>;
  /** The box may have new rows: reads at once. */
  notified(): void;
  /** A waiting row is due in `ms`: reads it then. */
  dueIn(ms: number): void;
}

/** Retrying does not help with these: an operator has to migrate, or to deploy. */
export const fatal: ReadonlySet<string> = new Set([
  "schema-missing",
  "schema-outdated",
  "schema-newer",
  "store-closed",
  "databases-differ",
]);

export function createDrainLoop<Tx>(store: Store<Tx>, options: DrainLoopOptions): DrainLoop {
  const context = contextOf(store, options);
  const running = new Set<Engine>();
  return {
    async run(target, signal, reached = () => {}) {
      const stop = following(signal);
      const one = oneRun(context, target, reached);
      running.add(one.engine);
      const parts = partsOf(context, one, stop.signal);
      const { retention } = options;
      const beside = [
        ...(retention ? [keepClean({ ...context, ...retention, store }, stop.signal)] : []),
        ...(context.notifier ? [listenTo(context, context.notifier, one, stop.signal)] : []),
      ];
      try {
        await Promise.all(parts);
      } catch (error) {
        context.failed(error, Number.POSITIVE_INFINITY);
        throw error;
      } finally {
        running.delete(one.engine);
        stop.abort();
        await Promise.allSettled(parts);
        // A run that never reached the store owns nothing.
        if (one.wasReached()) await leave(context, one);
        await endsSoon(Promise.allSettled(beside), context);
      }
    },
    notified() {
      for (const engine of running) engine.notified();
    },
    dueIn(ms) {
      for (const engine of running) engine.dueIn(ms);
    },
  };
}

interface Context extends DrainContext, Pick<DrainLoopOptions, "scheduled" | "notifier"> {
  nextOwner(): string;
}

/** What all runs share. */
function contextOf<Tx>(store: Store<Tx>, options: DrainLoopOptions): Context {
  const { box: boxName, leaseMs, runtime, telemetry } = options;
  const failed = (thrown: unknown, retryInMs: number) =>
    telemetry({ name: "relay.failed", box: boxName, error: failureOf(store, thrown), retryInMs });
  const backoff = reliable(options.backoff, (error) => failed(error, 0));
  return {
    ...options,
    box: boundedBox(store.box(boxName), leaseMs, runtime),
    boxName,
    backoff,
    nextOwner: uuidv7Generator(runtime),
    // After an outage of the database, however long, a relay must notice soon that the store is back.
    storeBackoff: (failures: number) => Math.min(backoff(failures, runtime.random), leaseMs / 10),
    isPermanent(error: Error): boolean {
      try {
        const answer: unknown = answered(options.isPermanent?.(error));
        if (!(answer instanceof Promise)) return Boolean(answer);
        // A promise counts as true in JavaScript, and would park every message at its first failure.
        failed(new ConfigError("option-invalid", "isPermanent answered a promise; answer true or false"), 0);
        return false;
      } catch (thrown) {
        failed(thrown, 0);
        return false;
      }
    },
    failed,
    isFatal: (error: unknown) => error instanceof ConfigError || fatal.has(PostboxError.from(error).code),
  };
}

interface OneRun {
  readonly owner: string;
  readonly ownership: LeasedLanes;
  readonly engine: Engine;
  wasReached(): boolean;
  isFatal(error: unknown): boolean;
}

/** Each run counts as a relay of its own; concurrent runs share the lanes. */
function oneRun(context: Context, target: Target, reached: () => void): OneRun {
  let wasReached = false;
  // Only before the first answer are refused credentials a mistake. Later, a password may be in rotation, so the relay
  // retries.
  const isFatal = (error: unknown) =>
    context.isFatal(error) || (!wasReached && PostboxError.from(error).code === "store-refused");
  const owner = context.nextOwner();
  const ownership: LeasedLanes = new LeasedLanes({
    ...context,
    isFatal,
    owner,
    reached() {
      wasReached = true;
      reached();
    },
    gained: (lanes) => engine.gained(lanes),
    lost(lanes) {
      engine.lost(lanes);
      target.lost?.(lanes);
    },
    resumed: () => engine.resume(),
    drain: (lanes) => engine.drain(lanes),
    unwanted: () => target.lanesInUse?.() ?? [],
  });
  const engine: Engine = new Engine({ ...context, isFatal, target, ownership });
  return { owner, ownership, engine, isFatal, wasReached: () => wasReached };
}

/**
 * The concurrent parts of a run, until the signal is aborted. Lease renewals go on until every row that was taken is
 * settled.
 */
function partsOf(context: Context, { ownership, engine, isFatal }: OneRun, signal: AbortSignal): Promise<void>[] {
  const { scheduled } = context;
  const finished = new AbortController();
  const working = engine.run(signal).finally(() => finished.abort());
  const notified = () => engine.notified();
  const parts = [ownership.run(signal, finished.signal), working];
  if (scheduled) parts.push(keepSchedule({ ...context, isFatal, promoted: notified }, signal));
  return parts;
}

function listenTo(context: Context, notifier: Notifier, { engine }: OneRun, signal: AbortSignal): Promise<void> {
  return listen({ ...context, notifier, notified: () => engine.notified() }, signal);
}

/** A stop waits only so long for an archive, whose rows the next purge removes, and for a notifier. */
async function endsSoon(beside: Promise<unknown>, { runtime, publishTimeoutMs }: Context): Promise<void> {
  const patience = new AbortController();
  const ended = beside.finally(() => patience.abort());
  await Promise.race([ended, sleep(runtime, publishTimeoutMs, patience.signal)]);
}

async function leave(
  { box, boxName, runtime, telemetry, failed }: Context,
  { owner, ownership }: OneRun,
): Promise<void> {
  const lanes = ownership.epochs.size;
  try {
    await box.release(owner);
    telemetry({ name: "relay.released", box: boxName, owner, lanes });
    if (runtime.failpoint) await runtime.failpoint("relay.released");
  } catch (error) {
    // Other relays take the lanes when the lease expires.
    failed(error, 0);
  }
}

/** An error of the driver has none of our codes and says only what happened. */
function failureOf<Tx>(store: Store<Tx>, thrown: unknown): PostboxError {
  if (thrown instanceof PostboxError) return thrown;
  if (!store.isUnavailable(thrown)) return PostboxError.from(thrown, "store-failed");
  return unavailable(store.name, thrown);
}
