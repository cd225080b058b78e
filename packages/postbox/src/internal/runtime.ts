import type { Failpoint } from "./failpoints.js";

/**
 * Time, randomness and failpoints: everything outside of the program that the library's decisions depend on. The
 * simulation and tests replace it, to control every interleaving.
 */
export interface Runtime {
  /** Wall clock in milliseconds since 1970. Never used for leases or due times, which use the database's clock. */
  now(): number;
  /** A clock that never goes back, in milliseconds from an arbitrary start. */
  monotonic(): number;
  /** In [0, 1). */
  random(): number;
  /** Cryptographically strong bytes, for ids. */
  randomBytes(count: number): Uint8Array;
  /** Runs `task` once after `ms`; the result cancels it. */
  schedule(task: () => void, ms: number): () => void;
  /** Called right after the named step, where a crash would be interesting. Absent in production. */
  failpoint?(name: Failpoint): Promise<void> | void;
}

/** Timers hold at most 2^31 - 1 ms, and fire at once beyond that. For a process, a later time is as good as never. */
export const longestTimerMs = 0x7fffffff;

const systemRuntime: Runtime = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  random: () => Math.random(),
  randomBytes: (count) => crypto.getRandomValues(new Uint8Array(count)),
  schedule(task, ms) {
    const timer = setTimeout(task, Math.min(ms, longestTimerMs));
    return () => clearTimeout(timer);
  },
};

/**
 * The system's time and randomness, with the replacements in `own`.
 *
 * @example
 * ```ts
 * const runtime = runtimeWith({ now: () => Date.parse("2026-01-01") });
 * ```
 */
export function runtimeWith(own: Partial<Runtime> = {}): Runtime {
  return { ...systemRuntime, ...own };
}

/** Resolves after `ms`, or at once when the signal is aborted: a stop is no failure. */
export function sleep(runtime: Runtime, ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const finish = () => {
      cancel();
      signal?.removeEventListener("abort", finish);
      resolve();
    };
    const cancel = runtime.schedule(finish, ms);
    signal?.addEventListener("abort", finish, { once: true });
  });
}
