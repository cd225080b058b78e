import type { Backoff } from "../backoff.js";
import type { Runtime } from "../internal/runtime.js";

/**
 * Stops sending while the transport is away. After each delay one batch tries; when it gets through, all may follow.
 * No message spends an attempt for it.
 */
export interface Breaker {
  /** Whether a batch may be sent now, when so many are on their way. */
  allows(batchesInFlight: number): boolean;
  /** The transport answered. */
  close(): void;
  /** It did not: answers with how long to wait. */
  open(): number;
  /** How long until the next try; undefined while nothing is to be waited for. */
  waitMs(): number | undefined;
}

export function createBreaker(backoff: Backoff, runtime: Runtime): Breaker {
  let failures = 0;
  let until = 0;
  return {
    allows: (batchesInFlight) => failures === 0 || (batchesInFlight === 0 && runtime.monotonic() >= until),
    close() {
      failures = 0;
    },
    open() {
      const delay = backoff(++failures, runtime.random);
      until = runtime.monotonic() + delay;
      return delay;
    },
    waitMs() {
      const left = until - runtime.monotonic();
      return failures > 0 && left > 0 ? Math.ceil(left) : undefined;
    },
  };
}
