import { PermanentError, PostboxError } from "../../errors.js";
import { longestTimerMs, type Runtime } from "../../internal/runtime.js";
import { storedError } from "../../internal/stored-error.js";
import { expiredError, lifeLeftMs } from "../../message/expiry.js";
import type { Row, Settlement } from "../../store.js";
import { aboutMessage, type TelemetryEvent } from "../../telemetry/events.js";
import type { DrainContext } from "../context.js";
import type { SendOutcome } from "../target.js";

/** What happens to a row, and the event to report once that is stored. */
export interface Decision {
  readonly settlement: Settlement;
  /** Absent for rows that were sent, which are most: their event is made when it is reported. */
  readonly event?: TelemetryEvent;
  /** The delay before the row is read again, if it stays in its place. */
  readonly againInMs?: number;
}

/**
 * Decides what happens to a row, from its outcome. `ahead` tells what happened to an earlier row of its key in the same
 * batch. If the sender held this row back behind that one, it has not failed itself and spends no attempt.
 */
export function decide(
  row: Row,
  outcome: SendOutcome,
  ahead: "held" | "parked" | undefined,
  options: DrainContext,
): Decision {
  const { boxName: box } = options;
  if (outcome.status === "sent") return { settlement: { row, to: "sent" } };
  const { error } = outcome;
  if (outcome.status === "dropped") {
    return decideDropped(row, error, `its sender dropped it: ${PostboxError.from(error).code}`, options);
  }
  // An expired row was never handed to the sender, so it was not held back either.
  if (isExpiry(outcome)) return decideExpired(row, error, options);
  if (ahead !== undefined && row.fault === undefined) return queueBehind(row, ahead, options);
  const about = aboutMessage(row.message);
  const text = storedError(error.message);
  if (outcome.status === "unavailable") return decideUnavailable(row, outcome, text, options);
  const isCounted = !(outcome.status === "failed" && outcome.uncounted);
  const attempts = row.attempts + (isCounted ? 1 : 0);
  const permanent = outcome.status === "rejected" || error instanceof PermanentError || options.isPermanent(error);
  if (permanent || (isCounted && attempts >= options.maxAttempts)) {
    const hold = options.holdParked && row.message.key !== undefined;
    return {
      settlement: { row, to: "parked", attempts, error: text, ...(hold && { hold }) },
      event: { name: "message.parked", box, ...about, error },
    };
  }
  const retryInMs = wished(outcome) ?? options.backoff(Math.max(1, attempts), options.runtime.random);
  const event: TelemetryEvent = { name: "message.failed", box, ...about, attempt: attempts, retryInMs, error };
  if (options.order === "total")
    return { settlement: { row, to: "pending", attempts, error: text }, event, againInMs: retryInMs };
  return { settlement: { row, to: "wait", attempts, retryInMs, error: text }, event };
}

/**
 * The unavailable destination is reported once, for all messages that go there; each message is only reported as held.
 */
function decideUnavailable(
  row: Row,
  { retryInMs: inMs }: { readonly retryInMs: number },
  error: string,
  { order, boxName: box }: DrainContext,
): Decision {
  const { id, key } = row.message;
  const retryInMs = Math.ceil(inMs);
  const event: TelemetryEvent = { name: "message.held", box, id, ...(key !== undefined && { key }) };
  if (order === "total")
    return { settlement: { row, to: "pending", attempts: row.attempts, error }, event, againInMs: retryInMs };
  return { settlement: { row, to: "wait", attempts: row.attempts, retryInMs, error }, event };
}

/** The outcome of a row that expired before it was sent. */
export function expiry({ message }: Row, clock: Pick<Runtime, "now">): SendOutcome | undefined {
  // Most messages never expire; they need no reading of the clock.
  if (message.extensions.expirytime === undefined || lifeLeftMs(message, clock.now()) > 0) return undefined;
  return { status: "rejected", error: expiredError(message) };
}

/** The outcome of a row whose stored columns do not make a message: it is parked unchanged. */
export function unreadable({ fault }: Row): SendOutcome | undefined {
  return fault && { status: "rejected", error: fault };
}

/** Whether the row was never handed to the sender, so that no other row was held back behind it. */
export function holdsNothingBack(row: Row, outcome: SendOutcome): boolean {
  return row.fault !== undefined || isExpiry(outcome);
}

function isExpiry(outcome: SendOutcome): boolean {
  if (outcome.status !== "rejected") return false;
  return outcome.error instanceof PermanentError && outcome.error.code === "message-expired";
}

/** An expired message spends no attempt and never holds its key. */
function decideExpired(row: Row, error: Error, options: DrainContext): Decision {
  if (options.onExpired === "drop") return decideDropped(row, error, "its expirytime had passed", options);
  return {
    settlement: { row, to: "parked", attempts: row.attempts, error: storedError(error.message) },
    event: { name: "message.parked", box: options.boxName, ...aboutMessage(row.message), error },
  };
}

/** The audit has one entry for all messages that were dropped for the same reason. */
function decideDropped(row: Row, error: Error, reason: string, { boxName: box }: DrainContext): Decision {
  return {
    settlement: { row, to: "dropped", reason },
    event: { name: "message.dropped", box, ...aboutMessage(row.message), error },
  };
}

/** Ignores a delay that no database type can store, since its settle would fail for ever. */
function wished(outcome: SendOutcome): number | undefined {
  if (outcome.status !== "failed" || outcome.retryInMs === undefined) return undefined;
  const ms = Math.min(outcome.retryInMs, longestTimerMs);
  return ms >= 0 ? ms : undefined;
}

/** Moves a row to `wait` behind an earlier row of its key. If that one was parked, the hold is due at once. */
export function queueBehind(row: Row, ahead: "held" | "parked", { boxName: box }: DrainContext): Decision {
  const { id, key } = row.message;
  const due = ahead === "parked" ? { retryInMs: 0 } : {};
  return {
    settlement: { row, to: "wait", attempts: row.attempts, ...due },
    event: { name: "message.held", box, id, key: key as string },
  };
}

export function sentEvent({ message: { id }, attempts }: Row, box: string): TelemetryEvent {
  return { name: "message.sent", box, id, attempt: attempts + 1 };
}
