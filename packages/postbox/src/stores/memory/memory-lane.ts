import type { Message } from "../../message/message.js";
import type { LaneGap, LateRow, Row, Settlement } from "../../store.js";
import { OrderedRows } from "./ordered-rows.js";

/** A message as a box keeps it. */
export interface StoredRow {
  readonly lane: number;
  readonly position: number;
  readonly message: Message;
  readonly attempts: number;
  readonly error?: string;
  readonly createdAt: number;
}

/** A key whose next message waits for a retry, with everything that waits behind it. There is none without rows. */
interface Hold {
  readonly key: string;
  dueAt: number;
  readonly rows: OrderedRows<StoredRow>;
}

/** The rows of one lane: `pending`, `wait` and `hold`. Knows no owners; whoever calls `settle` has checked the epoch. */
export class MemoryLane {
  readonly #pending = new OrderedRows<StoredRow>();
  readonly #holds = new Map<string, Hold>();

  add(row: StoredRow): void {
    this.#pending.set(row.position, row);
  }

  /** The first rows of `pending` beyond `after`, and the first of `wait` whose hold is due, at most `limit` of either. */
  read(after: number, limit: number, now: number): Row[] {
    const due: StoredRow[] = [];
    for (const hold of this.#holds.values()) {
      if (hold.dueAt <= now) due.push(...hold.rows.first(limit));
    }
    due.sort(byPosition);
    return [
      ...due.slice(0, limit).map((row) => shown(row, true, false)),
      ...this.#pending.first(limit, after).map((row) => shown(row, false, this.#holds.has(holdName(row.message)))),
    ];
  }

  late({ after, upTo, known }: LaneGap, now: number): LateRow[] {
    const seen = new Set(known);
    return this.#pending
      .first(Number.POSITIVE_INFINITY, after)
      .filter(({ position }) => position <= upTo && !seen.has(position))
      .map((row) => ({ ...shown(row, false, this.#holds.has(holdName(row.message))), ageMs: now - row.createdAt }));
  }

  /** Moves one row to what became of it, and answers with it unless it waits here. A row that is gone stays gone. */
  settle(settlement: Settlement, now: number): StoredRow | undefined {
    const row = this.#take(settlement.row);
    if (row === undefined || settlement.to === "sent") return row;
    const { attempts, error } = settlement;
    const moved: StoredRow = { ...row, attempts, ...(error === undefined ? {} : { error }) };
    if (settlement.to === "parked") return moved;
    const name = holdName(row.message);
    let hold = this.#holds.get(name);
    if (hold === undefined) {
      // Its key's hold may have gone since the row was read. It is due at once then: without a hold nothing in `wait`
      // would ever be read.
      hold = { key: row.message.key ?? row.message.id, dueAt: now, rows: new OrderedRows() };
      this.#holds.set(name, hold);
    }
    if (settlement.retryInMs !== undefined) hold.dueAt = now + settlement.retryInMs;
    hold.rows.set(row.position, moved);
    return undefined;
  }

  /**
   * Ends the hold of this message's key when nothing waits behind it any more. Called after a whole settle: in between,
   * the last row of a key may have left before the next one arrives.
   */
  freeHold(message: Message): void {
    const name = holdName(message);
    if (this.#holds.get(name)?.rows.size === 0) this.#holds.delete(name);
  }

  contents(): { readonly pending: StoredRow[]; readonly wait: StoredRow[]; readonly holds: string[] } {
    const holds = [...this.#holds.values()];
    return {
      pending: this.#pending.first(Number.POSITIVE_INFINITY),
      wait: holds.flatMap((hold) => hold.rows.first(Number.POSITIVE_INFINITY)),
      holds: holds.map((hold) => hold.key),
    };
  }

  #take(row: Row): StoredRow | undefined {
    const rows = row.waiting ? this.#holds.get(holdName(row.message))?.rows : this.#pending;
    return rows?.delete(row.position);
  }
}

export function byPosition(a: StoredRow, b: StoredRow): number {
  return a.position - b.position;
}

/** Bytes are the one part of a message that can be written to: who holds a row must not reach into the box by it. */
export function copyOf(message: Message): Message {
  return Object.freeze({ ...message, data: new Uint8Array(message.data) });
}

/** A message without a key waits alone, under its id; the prefix keeps an id from meeting another message's key. */
function holdName(message: Message): string {
  return message.key === undefined ? `id ${message.id}` : `key ${message.key}`;
}

function shown(row: StoredRow, waiting: boolean, held: boolean): Row {
  const { lane, position, message, attempts } = row;
  return { lane, position, message: copyOf(message), attempts, waiting, held };
}
