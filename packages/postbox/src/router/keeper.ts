import type { Backoff } from "../backoff.js";
import type { Runtime } from "../internal/runtime.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Delivery, Receiver } from "../transport.js";

/** What a router passes to its keeper. */
export interface KeeperOptions {
  readonly consumer: string;
  readonly concurrency: number;
  readonly maxAttempts: number;
  readonly backoff: Backoff;
  /** What to do with a type that has no handler. Ignored messages must not be stored first. */
  readonly onUnknownType: "park" | "ignore";
  readonly telemetry: Telemetry;
  readonly runtime: Runtime;
}

/** What to do with a message that failed. */
export type Verdict =
  | { readonly to: "retry"; readonly retryInMs: number; readonly error: Error }
  | { readonly to: "park"; readonly error: Error };

/** Stores messages of a router in a place of its own, so that the broker can forget them. One for each run. */
export interface Keeper {
  /**
   * The receiver to run on: it delivers what the given one delivers, unless it is stored first, and what was stored.
   */
  over(receiver: Receiver): Receiver;
  /**
   * Takes over a failed message, and returns what it did. `known`: another delivery of the message was handled or
   * stored meanwhile. Undefined: it does not store this message, so the delivery decides. Retries until the signal is
   * aborted, and rejects then; the message still belongs to the broker.
   */
  take(
    delivery: Pick<Delivery, "message" | "origin" | "kept">,
    verdict: Verdict,
    signal: AbortSignal,
  ): Promise<Verdict | "known" | undefined>;
}
