import type { DrainContext } from "../context.js";

export type PaceOptions = Pick<DrainContext, "publishTimeoutMs" | "leaseMs" | "runtime">;

/**
 * How much a sender gets at once, and for how long. With a fixed timeout, a broker that confirms slowly would never
 * confirm a batch. So each timeout doubles the next one, up to two thirds of the lease, and halves the batch. Quick
 * answers undo that step by step.
 */
export interface Pace {
  readonly timeoutMs: number;
  readonly most: number;
  /** A batch of this many messages, sent at `startedAt`, timed out. Batches that were in flight together count once. */
  timedOut(messages: number, startedAt: number): void;
  /** A batch was answered after this many ms. */
  answered(afterMs: number): void;
}

export function createPace({ publishTimeoutMs, leaseMs, runtime }: PaceOptions): Pace {
  const longestMs = Math.max(publishTimeoutMs, (leaseMs * 2) / 3);
  let timeoutMs = publishTimeoutMs;
  let most = Number.POSITIVE_INFINITY;
  let timedOutAt = Number.NEGATIVE_INFINITY;
  return {
    get timeoutMs() {
      return timeoutMs;
    },
    get most() {
      return most;
    },
    timedOut(messages, startedAt) {
      if (startedAt < timedOutAt) return;
      timedOutAt = runtime.monotonic();
      timeoutMs = Math.min(2 * timeoutMs, longestMs);
      most = Math.max(1, Math.floor(Math.min(messages, most) / 2));
    },
    answered(afterMs) {
      if (afterMs > publishTimeoutMs / 2) return;
      timeoutMs = Math.max(publishTimeoutMs, timeoutMs / 2);
      // Above any batch size, no limit is needed.
      most = most > 1_000_000 ? Number.POSITIVE_INFINITY : 2 * most;
    },
  };
}
