import { reliable } from "../backoff.js";
import { ConfigError, PostboxError } from "../errors.js";
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

/** Moves the rows of a box to a target: owns lanes, runs an engine in them, and whatever else a box needs meanwhile. */
export interface DrainLoop {
  /**
   * Until the signal is aborted and everything that was taken is settled. Two at once are two who share. `reached` is called when the
   * store has answered; what refuses us before that is not tried again.
   */
  run(target: Target, signal: AbortSignal, reached?: () => void): Promise<void>;
  /** There may be something new in the box: looks at once. */
  notified(): void;
  /** Something waits in the box that is due in `ms`: looks for it then. */
  dueIn(ms: number): void;
}

/** Retrying does not mend these: somebody has to migrate, or to deploy. */
export const fatal: ReadonlySet<string> = new Set([
  "schema-missing",
  "schema-outdated",
  "schema-newer",
  "store-closed",
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
        // A run that never reached the store has nothing to give back.
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
    // A relay that notices late that its store is back is late with everything, however long that was away.
    storeBackoff: (failures: number) => Math.min(backoff(failures, runtime.random), leaseMs / 10),
    isPermanent(error: Error): boolean {
      try {
        return options.isPermanent?.(error) ?? false;
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

/** One run is one relay: two at once are two, which share. */
function oneRun(context: Context, target: Target, reached: () => void): OneRun {
  let wasReached = false;
  // A relay that was let in once is let in again when a password was changed everywhere: only at first is it a mistake.
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

/** Everything that goes on side by side until the signal is aborted. Renewals go on until all that was taken is settled. */
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

/** A stop does not wait for ever for an archive, whose rows are removed another time, nor for a notifier. */
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
    // Others take the lanes when the lease has run out.
    failed(error, 0);
  }
}

/** What a driver throws has no code of ours, and says only what happened. */
function failureOf<Tx>(store: Store<Tx>, thrown: unknown): PostboxError {
  if (thrown instanceof PostboxError) return thrown;
  if (!store.isUnavailable(thrown)) return PostboxError.from(thrown, "store-failed");
  return unavailable(store.name, thrown);
}
