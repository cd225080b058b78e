export interface PaceOptions {
  readonly publishTimeoutMs: number;
  readonly leaseMs: number;
}

/**
 * How much a sender is given at once, and for how long. A broker that confirms slowly would never confirm anything within a timeout that
 * stays the same: each timeout doubles it, up to two thirds of the lease, and halves the batch. Quick answers undo that step by step.
 */
export interface Pace {
  readonly timeoutMs: number;
  readonly most: number;
  /** A batch of so many messages was not confirmed in time. */
  timedOut(messages: number): void;
  /** A batch was answered after so many ms. */
  answered(afterMs: number): void;
}

export function createPace({ publishTimeoutMs, leaseMs }: PaceOptions): Pace {
  const longestMs = Math.max(publishTimeoutMs, (leaseMs * 2) / 3);
  let timeoutMs = publishTimeoutMs;
  let most = Number.POSITIVE_INFINITY;
  return {
    get timeoutMs() {
      return timeoutMs;
    },
    get most() {
      return most;
    },
    timedOut(messages) {
      timeoutMs = Math.min(2 * timeoutMs, longestMs);
      most = Math.max(1, Math.floor(Math.min(messages, most) / 2));
    },
    answered(afterMs) {
      if (afterMs > publishTimeoutMs / 2) return;
      timeoutMs = Math.max(publishTimeoutMs, timeoutMs / 2);
      // Beyond any batch there is no limit to remember.
      most = most > 1_000_000 ? Number.POSITIVE_INFINITY : 2 * most;
    },
  };
}
