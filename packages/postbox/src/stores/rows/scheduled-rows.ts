import type { Message } from "../../message/message.js";
import type { StoredRow } from "./stored-row.js";

export type ScheduledRow = StoredRow & { readonly dueAt: number };

/** What a scheduled message is replaced and cancelled by. */
export interface ScheduleKey {
  readonly type: string;
  readonly scheduleKey: string;
}

/** Whether a message has this type and schedule key. */
export function isOf(message: Message, { type, scheduleKey }: ScheduleKey): boolean {
  return message.scheduleKey === scheduleKey && message.type === type;
}

/** Messages that are not to be sent yet, numbered by themselves. They hold nothing. */
export class ScheduledRows {
  /** The first due first, and of those due at once the first appended. */
  #rows: ScheduledRow[] = [];

  /** Replaces the one of the same type and schedule key. */
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

  /** Those that are due, but for what `isLocked`: an open transaction has replaced or cancelled it. */
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

  /** Removes the one of this type and schedule key. Answers with whether there was one. */
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

  /** When the first is due that is due after `since`. */
  nextDueAt(since: number): number | undefined {
    return this.#rows.find(({ dueAt }) => dueAt > since)?.dueAt;
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
export function unscheduled({ deliverAt: _, scheduleKey: __, ...message }: Message): Message {
  return message;
}
