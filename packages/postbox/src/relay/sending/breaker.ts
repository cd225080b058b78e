import type { PostboxError } from "../../errors.js";
import type { DrainContext } from "../context.js";

export interface BreakerOptions extends Pick<DrainContext, "boxName" | "backoff" | "runtime" | "telemetry"> {
  readonly target: { readonly name: string };
}

/**
 * Stops sending while the transport is unavailable. After each delay, one batch is tried; if it gets through, all
 * others follow. No message spends an attempt. Batches that were in flight together fail together: they count as one
 * failure.
 */
export interface Breaker {
  /** Whether a batch may be sent now, with this many in flight. */
  allows(batchesInFlight: number): boolean;
  /** A batch is sent. Returns the number to pass to `open` if it fails. */
  begin(): number;
  /** The transport answered. */
  close(): void;
  /**
   * The transport failed. Returns how long to wait; undefined if this batch was in flight already when the breaker last
   * opened.
   */
  open(error: PostboxError, begun: number): number | undefined;
  /** How long until the next try; undefined if a batch may be tried now. */
  waitMs(): number | undefined;
}

export function createBreaker({ boxName, target, backoff, runtime, telemetry }: BreakerOptions): Breaker {
  let failures = 0;
  let until = 0;
  let opened = 0;
  return {
    allows: (batchesInFlight) => failures === 0 || (batchesInFlight === 0 && runtime.monotonic() >= until),
    begin: () => opened,
    close() {
      if (failures > 0) telemetry({ name: "breaker.closed", box: boxName, sender: target.name });
      failures = 0;
    },
    open(error, begun) {
      if (failures > 0 && begun < opened) return undefined;
      opened++;
      const retryInMs = backoff(++failures, runtime.random);
      until = runtime.monotonic() + retryInMs;
      telemetry({ name: "breaker.opened", box: boxName, sender: target.name, retryInMs, error });
      return retryInMs;
    },
    waitMs() {
      const left = until - runtime.monotonic();
      return failures > 0 && left > 0 ? Math.ceil(left) : undefined;
    },
  };
}
