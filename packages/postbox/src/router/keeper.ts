import type { Backoff } from "../backoff.js";
import type { Runtime } from "../internal/runtime.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Delivery, Receiver } from "../transport.js";

/** What a router tells whoever keeps messages for it. */
export interface KeeperOptions {
  readonly consumer: string;
  readonly concurrency: number;
  readonly maxAttempts: number;
  readonly backoff: Backoff;
  /** What becomes of a type without a handler. What is ignored must not be stored first. */
  readonly onUnknownType: "park" | "ignore";
  readonly telemetry: Telemetry;
  readonly runtime: Runtime;
}

/** What becomes of a message whose handling failed. */
export type Verdict =
  | { readonly to: "retry"; readonly retryInMs: number; readonly error: Error }
  | { readonly to: "park"; readonly error: Error };

/**
 * Keeps messages of a router in a place of its own, so that the broker can forget them. One for each run.
 */
export interface Keeper {
  /** The receiver to run on: what the given one brings, as far as it is not kept first, and what was kept. */
  over(receiver: Receiver): Receiver;
  /**
   * Takes over a message that failed, and answers with what has become of it. `known`: another one of it was handled or
   * kept meanwhile. Without an answer it is not kept here, so let its delivery decide. Tries until the signal is
   * aborted, and rejects then: the message is still the broker's.
   */
  take(
    delivery: Pick<Delivery, "message" | "origin" | "kept">,
    verdict: Verdict,
    signal: AbortSignal,
  ): Promise<Verdict | "known" | undefined>;
}
