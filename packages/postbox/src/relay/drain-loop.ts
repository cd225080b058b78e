import { type Backoff, reliable } from "../backoff.js";
import { ConfigError, PostboxError } from "../errors.js";
import { following } from "../internal/following.js";
import { type Runtime, sleep } from "../internal/runtime.js";
import { uuidv7Generator } from "../internal/uuidv7.js";
import type { Notifier } from "../notifier.js";
import type { Order, Store } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";
import { boundedBox } from "./bounded-box.js";
import { Engine } from "./engine.js";
import { createOwnership, type Ownership } from "./owning/ownership.js";
import type { Target } from "./target.js";
import { listen } from "./upkeep/listener.js";
import { keepClean, type RetentionOptions } from "./upkeep/retention.js";
import { keepSchedule } from "./upkeep/schedule.js";

export interface DrainLoopOptions {
  /** The name of the box. */
  readonly box: string;
  readonly order: Order;
  readonly holdParked: boolean;
  readonly expired: "park" | "drop" | "send";
  readonly batchSize: number;
  readonly maxInFlight: number;
  readonly maxInFlightBytes: number;
  readonly maxAttempts: number;
  readonly pollIntervalMs: number;
  readonly publishTimeoutMs: number;
  readonly leaseMs: number;
  readonly keep: boolean;
  readonly backoff: Backoff;
  /** Defaults to none. */
  readonly isPermanent?: (error: Error) => boolean;
  /** Whether anything is ever scheduled in this box. */
  readonly scheduled: boolean;
  /** Defaults to keeping everything. */
  readonly retention?: Pick<RetentionOptions, "retentionMs" | "cleanIntervalMs" | "afterMs" | "archive" | "partitions">;
  /** Listens to these. Defaults to looking only. */
  readonly notifier?: Notifier;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
}

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
  const { box: boxName, leaseMs, publishTimeoutMs, runtime, telemetry, notifier } = options;
  const failed = (thrown: unknown, retryInMs: number) =>
    telemetry({ name: "relay.failed", box: boxName, error: failureOf(store, thrown), retryInMs });
  const box = boundedBox(store.box(boxName), leaseMs, runtime);
  const nextOwner = uuidv7Generator(runtime);
  const backoff = reliable(options.backoff, (error) => failed(error, 0));
  const engineOptions = {
    ...options,
    box,
    boxName,
    backoff,
    // A relay that notices late that its store is back is late with everything, however long that was away.
    storeBackoff: (failures: number) => Math.min(backoff(failures, runtime.random), leaseMs / 10),
    isPermanent: (error: Error) => {
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
  const running = new Set<Engine>();

  /** A stop does not wait for ever for somebody's archive: what was not removed is removed another time. */
  async function impatiently(cleaning: Promise<void>): Promise<void> {
    const patience = new AbortController();
    const ended = cleaning.finally(() => patience.abort());
    await Promise.race([ended, sleep(runtime, publishTimeoutMs, patience.signal)]);
  }

  async function leave(owner: string, lanes: number): Promise<void> {
    try {
      await box.release(owner);
      telemetry({ name: "relay.released", box: boxName, owner, lanes });
      if (runtime.failpoint) await runtime.failpoint("relay.released");
    } catch (error) {
      // Others take the lanes when the lease has run out.
      failed(error, 0);
    }
  }

  return {
    async run(target, signal, reached = () => {}) {
      let wasReached = false;
      // Who was let in once is let in again when a password was changed everywhere: only at first is it a mistake.
      const isFatal = (error: unknown) =>
        engineOptions.isFatal(error) || (!wasReached && PostboxError.from(error).code === "store-refused");
      // Of this run: two at once are two relays, which share.
      const owner = nextOwner();
      const stop = following(signal);
      const finished = new AbortController();
      const ownership: Ownership = createOwnership({
        ...engineOptions,
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
      const engine: Engine = new Engine({ ...engineOptions, isFatal, target, ownership });
      running.add(engine);
      const working = engine.run(stop.signal).finally(() => finished.abort());
      const parts = [ownership.run(stop.signal, finished.signal), working];
      if (options.scheduled) {
        parts.push(keepSchedule({ ...engineOptions, isFatal, promoted: () => engine.notified() }, stop.signal));
      }
      if (notifier) parts.push(listen({ ...engineOptions, notifier, notified: () => engine.notified() }, stop.signal));
      const cleaning = options.retention && keepClean({ ...engineOptions, ...options.retention, store }, stop.signal);
      try {
        await Promise.all(parts);
      } catch (error) {
        failed(error, Number.POSITIVE_INFINITY);
        throw error;
      } finally {
        running.delete(engine);
        stop.abort();
        await Promise.allSettled(parts);
        // Who was never let in has nothing to give back.
        if (wasReached) await leave(owner, ownership.epochs.size);
        if (cleaning !== undefined) await impatiently(cleaning);
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

/** What a driver throws has no code of ours, and says only what happened. */
function failureOf<Tx>(store: Store<Tx>, thrown: unknown): PostboxError {
  if (thrown instanceof PostboxError) return thrown;
  if (!store.isUnavailable(thrown)) return PostboxError.from(thrown, "store-failed");
  const { message } = PostboxError.from(thrown);
  const text = `${store.name} cannot be reached: ${message}; it is tried again, so look at the database, its limit of connections and the network`;
  return new PostboxError("store-unavailable", text, { cause: thrown });
}
