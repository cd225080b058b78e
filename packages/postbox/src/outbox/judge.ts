import type { Backoff } from "../backoff.js";
import { PermanentError } from "../errors.js";
import type { Row, Settlement } from "../store.js";
import type { TelemetryEvent } from "../telemetry/events.js";
import type { Outcome } from "../transport.js";

export interface JudgeOptions {
  readonly box: string;
  readonly maxAttempts: number;
  readonly backoff: Backoff;
  readonly isPermanent: (error: Error) => boolean;
  readonly random: () => number;
}

/** What becomes of a row, and what there is to tell once that is stored. */
export interface Judgement {
  readonly settlement: Settlement;
  readonly event: TelemetryEvent;
}

/**
 * Decides what becomes of rows that were read, given what became of their sending. Rows without an outcome stay where
 * they are. The first failure of a key holds it: what stands behind goes to `wait` without spending an attempt.
 */
export function judge(
  rows: readonly Row[],
  outcomes: ReadonlyMap<Row, Outcome>,
  options: JudgeOptions,
): readonly Judgement[] {
  const judgements: Judgement[] = [];
  const halted = new Map<string, "held" | "parked">();
  for (const row of rows) {
    const { id, key } = row.message;
    const outcome = outcomes.get(row);
    const ahead = key === undefined ? undefined : halted.get(key);
    if (outcome?.status === "sent") {
      const event = { name: "message.sent", box: options.box, id, attempt: row.attempts + 1 } as const;
      judgements.push({ settlement: { row, to: "sent" }, event });
    } else if (row.held || ahead !== undefined) {
      // One that waits already keeps its place; its hold is due, so it goes out next.
      if (!row.waiting) judgements.push(queueBehind(row, ahead, options));
      if (key !== undefined && ahead === "parked") halted.set(key, "held");
    } else if (outcome !== undefined) {
      const judgement = failure(row, outcome.error, outcome.status === "rejected", options);
      judgements.push(judgement);
      if (key !== undefined) halted.set(key, judgement.settlement.to === "parked" ? "parked" : "held");
    }
  }
  return judgements;
}

function queueBehind(row: Row, ahead: "held" | "parked" | undefined, { box }: JudgeOptions): Judgement {
  const { id, key } = row.message;
  // Behind a parked one nothing needs to wait for a retry: the hold only keeps the order and is due at once.
  const due = ahead === "parked" ? { retryInMs: 0 } : {};
  return {
    settlement: { row, to: "wait", attempts: row.attempts, ...due },
    event: { name: "message.held", box, id, key: key as string },
  };
}

function failure(row: Row, error: Error, rejected: boolean, options: JudgeOptions): Judgement {
  const { box } = options;
  const { id } = row.message;
  const attempts = row.attempts + 1;
  const permanent = rejected || error instanceof PermanentError || options.isPermanent(error);
  if (permanent || attempts >= options.maxAttempts) {
    return {
      settlement: { row, to: "parked", attempts, error: error.message },
      event: { name: "message.parked", box, id, error },
    };
  }
  const retryInMs = options.backoff(attempts, options.random);
  return {
    settlement: { row, to: "wait", attempts, retryInMs, error: error.message },
    event: { name: "message.failed", box, id, attempt: attempts, retryInMs, error },
  };
}
