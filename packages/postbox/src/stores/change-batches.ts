import type { Changed } from "../admin.js";
import { type Runtime, sleep } from "../internal/runtime.js";
import type { CheckedChange } from "./admin-options.js";

/** How many messages one transaction of a change touches at most. */
export const changeBatch = 500;

/** The next rows of a change: the first `limit` matching rows beyond position `after`, up to `upTo`. */
export interface ChangeStep {
  readonly after: number;
  readonly upTo: number;
  readonly limit: number;
}

/** The result of one step. */
export interface ChangedStep {
  /** How many rows it found. Fewer than its limit means that there are no more. */
  readonly found: number;
  /** How many of them it changed. Others may have changed concurrently. */
  readonly count: number;
  /** The highest position that it found. */
  readonly last: number;
}

/**
 * Runs a change step by step, in order of position, within its bounds. `step` is one transaction, with an audit entry
 * if it changed anything. Positions only grow from step to step, so rows that return meanwhile are not changed twice.
 */
export async function changeInBatches(
  {
    bounds,
    perSecond = Number.POSITIVE_INFINITY,
    signal,
    onBatch,
  }: Pick<CheckedChange, "bounds" | "perSecond" | "signal" | "onBatch">,
  runtime: Runtime,
  step: (step: ChangeStep) => Promise<ChangedStep>,
): Promise<Changed> {
  const start = runtime.monotonic();
  // A slow change takes smaller steps, about one per second, instead of a burst and a long pause.
  const most = Math.max(1, Math.min(changeBatch, Math.floor(perSecond)));
  let count = 0;
  let after = 0;
  while (count < bounds.most && !signal?.aborted) {
    const limit = Math.min(most, bounds.most - count);
    const begun = runtime.monotonic();
    const changed = await step({ after, upTo: bounds.upTo, limit });
    const tookMs = runtime.monotonic() - begun;
    count += changed.count;
    onBatch?.(count);
    if (changed.found < limit) break;
    after = changed.last;
    const aheadMs = (count / perSecond) * 1000 - (runtime.monotonic() - start);
    // Rests for as long as it worked, so that relays can send and settle in between.
    const restMs = Math.max(aheadMs, tookMs);
    if (restMs > 1 && count < bounds.most) await sleep(runtime, restMs, signal);
  }
  return { count };
}
