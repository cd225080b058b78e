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
  /** Defaults to keeping everything. */
  readonly retention?: RetentionOptions;
  /** Listens to these. Defaults to looking only. */
  readonly notifier?: Notifier;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
}

/** What the parts of a drain loop have in common. Each names what it needs of it. */
export interface DrainContext
  extends Omit<DrainLoopOptions, "box" | "isPermanent" | "scheduled" | "retention" | "notifier"> {
  /** No call to it takes longer than a lease. */
  readonly box: Box;
  readonly boxName: string;
  readonly isPermanent: (error: Error) => boolean;
  /** How long to wait after so many failures of the store in a row. */
  storeBackoff(failures: number): number;
  /** Tells of a failure that is tried again after `retryInMs`. */
  failed(error: unknown, retryInMs: number): void;
  /** Whether no retry can mend this. */
  isFatal(error: unknown): boolean;
}
