import type { Message } from "../../message/message.js";
import type { StoredRow } from "./memory-lane.js";

export interface ScheduledRow extends StoredRow {
  readonly dueAt: number;
}

/** Messages that are not to be sent yet, numbered by themselves. They hold nothing. */
export class MemorySchedule {
  /** The first due first, and of those due at once the first appended. */
  readonly #rows: ScheduledRow[] = [];
  #lastPosition = 0;

  /** As for any row: before the commit, and for good even without one. */
  nextPosition(): number {
    return ++this.#lastPosition;
  }

  add(row: ScheduledRow): void {
    let at = this.#rows.length;
    for (; at > 0; at--) {
      const before = this.#rows[at - 1] as ScheduledRow;
      if (before.dueAt < row.dueAt || (before.dueAt === row.dueAt && before.position < row.position)) break;
    }
    this.#rows.splice(at, 0, row);
  }

  takeDue(limit: number, now: number): ScheduledRow[] {
    const due = this.#rows.findIndex(({ dueAt }) => dueAt > now);
    return this.#rows.splice(0, Math.min(limit, due === -1 ? this.#rows.length : due));
  }

  delete(position: number): void {
    const at = this.#rows.findIndex((row) => row.position === position);
    if (at !== -1) this.#rows.splice(at, 1);
  }

  get firstDueAt(): number | undefined {
    return this.#rows[0]?.dueAt;
  }

  /** The first due first. */
  all(): ScheduledRow[] {
    return [...this.#rows];
  }
}

/** When a message is to be sent at the earliest; absent where that is any time. */
export function dueTimeOf({ deliverAt }: Message): number | undefined {
  return deliverAt === undefined ? undefined : Date.parse(deliverAt);
}

/** The message as it is sent: its schedule has done its work and does not travel. */
export function unscheduled({ deliverAt: _, ...message }: Message): Message {
  return message;
}
