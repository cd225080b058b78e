import type { Backoff } from "../backoff.js";
import { PermanentError } from "../errors.js";
import type { Row, Settlement } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Outcome } from "../transport.js";

export interface JudgeOptions {
  readonly box: string;
  readonly maxAttempts: number;
  readonly backoff: Backoff;
  readonly isPermanent: (error: Error) => boolean;
  readonly random: () => number;
  readonly telemetry: Telemetry;
}

/**
 * Decides what becomes of rows that were read, given what became of their sending. Rows without an outcome stay where
 * they are. The first failure of a key holds it: what stands behind goes to `wait` without spending an attempt.
 */
export function judge(
  rows: readonly Row[],
  outcomes: ReadonlyMap<Row, Outcome>,
  options: JudgeOptions,
): readonly Settlement[] {
  const settlements: Settlement[] = [];
  const halted = new Map<string, "held" | "parked">();
  for (const row of rows) {
    const key = row.message.key;
    const outcome = outcomes.get(row);
    const ahead = key === undefined ? undefined : halted.get(key);
    if (outcome?.status === "sent") {
      options.telemetry({ name: "message.sent", box: options.box, id: row.message.id, attempt: row.attempts + 1 });
      settlements.push({ row, to: "sent" });
    } else if (row.held || ahead !== undefined) {
      const behind = queueBehind(row, ahead, options);
      if (behind !== undefined) settlements.push(behind);
      if (key !== undefined && ahead === "parked") halted.set(key, "held");
    } else if (outcome !== undefined) {
      const failed = failure(row, outcome.error, outcome.status === "rejected", options);
      settlements.push(failed);
      if (key !== undefined) halted.set(key, failed.to === "parked" ? "parked" : "held");
    }
  }
  return settlements;
}

function queueBehind(row: Row, ahead: "held" | "parked" | undefined, options: JudgeOptions): Settlement | undefined {
  // One that waits already keeps its place; its hold is due, so it goes out next.
  if (row.waiting) return undefined;
  const { id, key } = row.message;
  options.telemetry({ name: "message.held", box: options.box, id, key: key as string });
  // Behind a parked one nothing needs to wait for a retry: the hold only keeps the order and is due at once.
  return { row, to: "wait", attempts: row.attempts, ...(ahead === "parked" ? { retryInMs: 0 } : {}) };
}

function failure(row: Row, error: Error, rejected: boolean, options: JudgeOptions): Settlement {
  const attempts = row.attempts + 1;
  const { box, telemetry } = options;
  const id = row.message.id;
  const permanent = rejected || error instanceof PermanentError || options.isPermanent(error);
  if (permanent || attempts >= options.maxAttempts) {
    telemetry({ name: "message.parked", box, id, error });
    return { row, to: "parked", attempts, error: error.message };
  }
  const retryInMs = options.backoff(attempts, options.random);
  telemetry({ name: "message.failed", box, id, attempt: attempts, retryInMs, error });
  return { row, to: "wait", attempts, retryInMs, error: error.message };
}
