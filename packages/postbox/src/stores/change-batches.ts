import type { Changed } from "../admin.js";
import { type Runtime, sleep } from "../internal/runtime.js";
import type { CheckedChange } from "./admin-options.js";

/** How many messages one transaction of a change touches at most. */
export const changeBatch = 500;

/** The next rows of a change: the first `limit` that fit and lie beyond `after` and not beyond `upTo`. */
export interface ChangeStep {
  readonly after: number;
  readonly upTo: number;
  readonly limit: number;
}

/** What one step has changed. */
export interface ChangedStep {
  /** How many it found. Fewer than its limit: there are no more. */
  readonly found: number;
  /** How many of these it changed: somebody else may have been faster with some. */
  readonly count: number;
  /** The highest position that it found. */
  readonly last: number;
}

/**
 * Makes a change step by step, in order of position, within its bounds. `step` is one transaction, with its entry in the
 * audit if it changed anything. Positions only grow from step to step, so what comes back meanwhile is not changed twice.
 */
export async function changeInBatches(
  { bounds, perSecond = Number.POSITIVE_INFINITY, signal }: Pick<CheckedChange, "bounds" | "perSecond" | "signal">,
  runtime: Runtime,
  step: (step: ChangeStep) => Promise<ChangedStep>,
): Promise<Changed> {
  const start = runtime.monotonic();
  // Slow ones go in smaller steps, about one a second: all at once and then a long pause would be no pace.
  const most = Math.max(1, Math.min(changeBatch, Math.floor(perSecond)));
  let count = 0;
  let after = 0;
  while (count < bounds.most && !signal?.aborted) {
    const limit = Math.min(most, bounds.most - count);
    const begun = runtime.monotonic();
    const changed = await step({ after, upTo: bounds.upTo, limit });
    const tookMs = runtime.monotonic() - begun;
    count += changed.count;
    if (changed.found < limit) break;
    after = changed.last;
    const aheadMs = (count / perSecond) * 1000 - (runtime.monotonic() - start);
    // It rests as long as it worked: whoever sends and settles goes on in between.
    const restMs = Math.max(aheadMs, tookMs);
    if (restMs > 1 && count < bounds.most) await sleep(runtime, restMs, signal);
  }
  return { count };
}
