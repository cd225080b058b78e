import type { Message } from "../../message/message.js";
import type { StoredRow } from "./stored-row.js";

export type ScheduledRow = StoredRow & { readonly dueAt: number };

/** Identifies a scheduled message that can be replaced or cancelled. */
export interface ScheduleKey {
  readonly type: string;
  readonly scheduleKey: string;
}

/** Whether a message has this type and schedule key. */
export function isOf(message: Message, { type, scheduleKey }: ScheduleKey): boolean {
  return message.scheduleKey === scheduleKey && message.type === type;
}

/** Messages that are not due yet, with positions of their own. They hold no key. */
export class ScheduledRows {
  /** In order of due time, then of append. */
  #rows: ScheduledRow[] = [];

  /** Replaces the message with the same type and schedule key. */
  add(row: ScheduledRow): void {
    const { type, scheduleKey } = row.message;
    if (scheduleKey !== undefined) this.cancel({ type, scheduleKey });
    let at = this.#rows.length;
    for (; at > 0; at--) {
      const before = this.#rows[at - 1] as ScheduledRow;
      if (before.dueAt < row.dueAt || (before.dueAt === row.dueAt && before.position < row.position)) break;
    }
    this.#rows.splice(at, 0, row);
  }

  /**
   * Removes and returns due messages, except those that `isLocked`: an open transaction has replaced or cancelled them.
   */
  takeDue(limit: number, now: number, isLocked: (message: Message) => boolean): ScheduledRow[] {
    const due: ScheduledRow[] = [];
    for (const row of this.#rows) {
      if (row.dueAt > now || due.length === limit) break;
      if (!isLocked(row.message)) due.push(row);
    }
    for (const { position } of due) this.delete(position);
    return due;
  }

  has(key: ScheduleKey): boolean {
    return this.#rows.some(({ message }) => isOf(message, key));
  }

  /** Removes the message with this type and schedule key. Returns whether there was one. */
  cancel(key: ScheduleKey): boolean {
    return this.#removeFirst(({ message }) => isOf(message, key));
  }

  delete(position: number): void {
    this.#removeFirst((row) => row.position === position);
  }

  #removeFirst(test: (row: ScheduledRow) => boolean): boolean {
    const at = this.#rows.findIndex(test);
    if (at !== -1) this.#rows.splice(at, 1);
    return at !== -1;
  }

  /** The first due time after `since`. */
  nextDueAt(since: number): number | undefined {
    return this.#rows.find(({ dueAt }) => dueAt > since)?.dueAt;
  }

  /** In order of due time. */
  all(): ScheduledRow[] {
    return [...this.#rows];
  }
}

/** The earliest time at which a message may be sent; undefined for any time. */
export function dueTimeOf({ deliverAt }: Message): number | undefined {
  return deliverAt === undefined ? undefined : Date.parse(deliverAt);
}

/** The message as it is sent, without its schedule. */
export function unscheduled({ deliverAt: _, scheduleKey: __, ...message }: Message): Message {
  return message;
}
