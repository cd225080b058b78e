import { setImmediate } from "node:timers/promises";
import type { Runtime } from "postbox/store";

/** Options of `manualRuntime`. */
export interface ManualRuntimeOptions {
  /** The initial time. Defaults to the start of 2026. */
  readonly now?: number;
  /** The same seed gives the same random numbers. Defaults to 1. */
  readonly seed?: number;
  /**
   * Awaited after each task that becomes due, until the work that the task began has gone as far as it can. Defaults to
   * one turn of the event loop.
   */
  readonly idle?: () => Promise<unknown>;
}

/** A runtime whose time stands still until a test advances it. */
export interface ManualRuntime extends Runtime {
  /**
   * Advances the time by `ms` and runs what becomes due, in order. Between two tasks, everything that can continue
   * does.
   */
  advance(ms: number): Promise<void>;
}

/**
 * Makes a clock that stands still until `advance` moves it.
 *
 * @example
 * ```ts
 * const runtime = manualRuntime();
 * const relay = createRelay(store, sender, { runtime });
 * await runtime.advance(60_000);
 * ```
 */
export function manualRuntime(options: ManualRuntimeOptions = {}): ManualRuntime {
  const start = options.now ?? Date.UTC(2026, 0, 1);
  const random = seeded(options.seed ?? 1);
  const idle = options.idle ?? (() => setImmediate());
  let elapsed = 0;
  let tasks: { readonly dueAt: number; readonly task: () => void }[] = [];
  return {
    now: () => start + elapsed,
    monotonic: () => elapsed,
    random,
    randomBytes: (count) => Uint8Array.from({ length: count }, () => Math.floor(random() * 256)),
    schedule(task, ms) {
      const entry = { dueAt: elapsed + Math.max(0, ms), task };
      // Sorting is stable, so tasks of the same moment run in the order in which they were scheduled.
      tasks = [...tasks, entry].sort((a, b) => a.dueAt - b.dueAt);
      return () => {
        tasks = tasks.filter((other) => other !== entry);
      };
    },
    async advance(ms) {
      const until = elapsed + ms;
      await idle();
      for (let next = tasks[0]; next !== undefined && next.dueAt <= until; next = tasks[0]) {
        tasks = tasks.slice(1);
        elapsed = Math.max(elapsed, next.dueAt);
        next.task();
        await idle();
      }
      elapsed = until;
    },
  };
}

/** Mulberry32: small, and good enough to choose interleavings. */
function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
