import { setImmediate } from "node:timers/promises";
import type { Runtime } from "postbox/store";

export interface ManualRuntimeOptions {
  /** Where the clock stands at first. Defaults to the start of 2026. */
  readonly now?: number;
  /** The same seed gives the same chance. Defaults to 1. */
  readonly seed?: number;
  /**
   * Awaited after each task that falls due: until what it began has gone on as far as it can. Defaults to a turn of the
   * event loop.
   */
  readonly idle?: () => Promise<unknown>;
}

/** A runtime whose time stands still until it is moved. */
export interface ManualRuntime extends Runtime {
  /** Moves time on by `ms`, running what falls due in order; between two tasks everything that can go on does. */
  advance(ms: number): Promise<void>;
}

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
      // Sorting is stable, so that tasks of one moment run in the order they were scheduled in.
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
