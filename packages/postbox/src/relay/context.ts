import type { Backoff } from "../backoff.js";
import type { Runtime } from "../internal/runtime.js";
import type { Notifier } from "../notifier.js";
import type { Box, Order } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";
import type { RetentionOptions } from "./upkeep/retention.js";

export interface DrainLoopOptions {
  /** The name of the box. */
  readonly box: string;
  readonly order: Order;
  readonly holdParked: boolean;
  readonly onExpired: "park" | "drop" | "send";
  readonly batchSize: number;
  readonly maxInFlight: number;
  readonly maxInFlightBytes: number;
  readonly maxAttempts: number;
  readonly pollIntervalMs: number;
  readonly publishTimeoutMs: number;
  readonly leaseMs: number;
  readonly keep: boolean;
  readonly backoff: Backoff;
  /** Defaults to none. */
  readonly isPermanent?: (error: Error) => boolean;
  /** Whether anything is ever scheduled in this box. */
  readonly scheduled: boolean;
  /** Defaults to removing nothing. */
  readonly retention?: RetentionOptions;
  /** Wakes the drain loop. Defaults to polling only. */
  readonly notifier?: Notifier;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
}

/** What all parts of a drain loop share. Each part declares which of it it needs. */
export interface DrainContext
  extends Omit<DrainLoopOptions, "box" | "isPermanent" | "scheduled" | "retention" | "notifier"> {
  /** Every call to it times out after `leaseMs`. */
  readonly box: Box;
  readonly boxName: string;
  readonly isPermanent: (error: Error) => boolean;
  /** The delay after this many consecutive failures of the store. */
  storeBackoff(failures: number): number;
  /** Reports a failure. The call is tried again after `retryInMs`. */
  failed(error: unknown, retryInMs: number): void;
  /** Whether retrying can never succeed. */
  isFatal(error: unknown): boolean;
}
