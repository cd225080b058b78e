import type { Message } from "../../message/message.js";
import type { LaneGap, LateRow, Row } from "../../store.js";
import { holdNames, holdOfId, type RowWrite, type SettledHold, type SettledRow } from "../settle-plan.js";
import { OrderedRows } from "./ordered-rows.js";

/** A message as a box keeps it. */
export interface StoredRow extends SettledRow {
  readonly message: Message;
  readonly createdAt: number;
  /** When it came to where it is, or last failed there. */
  readonly updatedAt: number;
}

/** A row of `wait`, and when its hold is due. */
export interface WaitingRow extends StoredRow {
  readonly dueAt: number;
}

/** A key whose next message waits for a retry, with everything that waits behind it. */
interface Hold {
  dueAt: number;
  readonly rows: OrderedRows<StoredRow>;
}

/** The rows of one lane: `pending`, `wait` and `hold`. Knows no owners; whoever writes has checked the epoch. */
export class MemoryLane {
  readonly #pending = new OrderedRows<StoredRow>();
  readonly #holds = new Map<string, Hold>();

  add(row: StoredRow): void {
    this.#pending.set(row.position, row);
  }

  read(after: number, limit: number): Row[] {
    return this.#pending.first(limit, after).map((row) => shown(row, false, this.#isHeld(row.message)));
  }

  /** Without what is held under these: a key, or U+0001 and an id. */
  due(limit: number, now: number, except: ReadonlySet<string>): Row[] {
    const holds = [...this.#holds]
      .filter(([name, { dueAt, rows }]) => dueAt <= now && rows.size > 0 && !except.has(name))
      .map(([, hold]) => hold)
      .sort((a, b) => a.dueAt - b.dueAt)
      .slice(0, limit);
    const rows = holds.flatMap((hold) => hold.rows.first(Math.floor(limit / holds.length)));
    return rows.sort(byPosition).map((row) => shown(row, true, false));
  }

  late({ after, upTo, known }: LaneGap, now: number): LateRow[] {
    const seen = new Set(known);
    return this.#pending
      .first(Number.POSITIVE_INFINITY, after)
      .filter(({ position }) => position <= upTo && !seen.has(position))
      .map((row) => ({ ...shown(row, false, this.#isHeld(row.message)), ageMs: now - row.createdAt }));
  }

  /** A message without a key stands behind nobody, not even another one of the same id. */
  #isHeld({ key }: Message): boolean {
    return key !== undefined && this.#holds.has(key);
  }

  /** Notes how often a row was on its way when something died. */
  suspect({ position, message, waiting, crashes }: Row): void {
    for (const rows of waiting ? this.#holdsOver(message).map((hold) => hold.rows) : [this.#pending]) {
      const row = rows.get(position);
      if (row?.message.id === message.id) rows.set(position, { ...row, crashes });
    }
  }

  /** The row at the place of one that was read, whichever message it has; and the holds that either may be under. */
  loaded(read: Row): { readonly row: StoredRow | undefined; readonly holds: readonly SettledHold[] } {
    const places = read.waiting ? this.#holdsOver(read.message).map(({ rows }) => rows) : [this.#pending];
    const row = places.flatMap((rows) => rows.get(read.position) ?? [])[0];
    const names = new Set([read.message, ...(row === undefined ? [] : [row.message])].flatMap(holdNames));
    const holds = [...names].flatMap((name) => {
      const hold = this.#holds.get(name);
      return hold === undefined ? [] : [{ lane: read.lane, name, dueAt: hold.dueAt, waiting: hold.rows.size }];
    });
    return { row, holds };
  }

  /** Writes what a plan says of one row, as far as it concerns this lane. */
  write({ before, to, after }: RowWrite<StoredRow>): void {
    this.#rowsOf(before)?.delete(before.position);
    if (to === "pending" || to === "wait") this.#rowsOf(after)?.set(after.position, after);
  }

  hold({ name, dueAt }: Pick<SettledHold, "name" | "dueAt">): void {
    const hold = this.#holds.get(name);
    if (hold === undefined) this.#holds.set(name, { dueAt, rows: new OrderedRows() });
    else hold.dueAt = dueAt;
  }

  /** Ends a hold that nothing waits under. */
  free(name: string): void {
    this.#holds.delete(name);
  }

  #rowsOf({ hold }: StoredRow): OrderedRows<StoredRow> | undefined {
    return hold === undefined ? this.#pending : this.#holds.get(hold)?.rows;
  }

  /**
   * Whether this row is here, the same message and of the turn that was read: an operator may have put it back since, to be
   * settled anew, and after a lost commit its position may be another message's.
   */
  has({ position, message, waiting, turn = 0 }: Row): boolean {
    const places = waiting ? this.#holdsOver(message).map(({ rows }) => rows) : [this.#pending];
    return places.some((rows) => {
      const row = rows.get(position);
      return row?.message.id === message.id && (!waiting || (row.turn ?? 0) === turn);
    });
  }

  /**
   * Puts a parked row back to its place, before all that wait there; `letsGo` what was held for good. False: its key is not held.
   */
  putBack(row: StoredRow, letsGo: boolean, now: number): boolean {
    const { key } = row.message;
    const hold = key === undefined ? undefined : this.#holds.get(key);
    if (key === undefined || hold === undefined) return false;
    hold.rows.set(row.position, { ...row, hold: key });
    if (letsGo && hold.dueAt === Number.POSITIVE_INFINITY) hold.dueAt = now;
    return true;
  }

  /**
   * Lets a key go on now. `onlyForGood` leaves one alone that will end by itself. What was read while it was held queues up
   * behind a hold that is made anew.
   */
  letGo(key: string, now: number, onlyForGood = false): boolean {
    const hold = this.#holds.get(key);
    if (onlyForGood && hold?.dueAt !== Number.POSITIVE_INFINITY) return false;
    if (hold !== undefined) hold.dueAt = Math.min(hold.dueAt, now);
    if (hold?.rows.size === 0) this.#holds.delete(key);
    return hold !== undefined;
  }

  /** Lets a waiting row be tried now, unless somebody holds its key for good. */
  retryNow(position: number, message: Message, now: number): void {
    for (const hold of this.#holdsOver(message)) {
      const row = hold.rows.get(position);
      if (row === undefined) continue;
      hold.rows.set(position, { ...row, attempts: 0 });
      if (hold.dueAt !== Number.POSITIVE_INFINITY) hold.dueAt = Math.min(hold.dueAt, now);
    }
  }

  /** Takes a row out for good. */
  remove(position: number, message: Message, waiting: boolean, now: number): void {
    for (const hold of waiting ? this.#holdsOver(message) : []) {
      const [first] = hold.rows.first(1);
      // Those behind it waited for this one.
      if (first?.position === position && hold.dueAt !== Number.POSITIVE_INFINITY)
        hold.dueAt = Math.min(hold.dueAt, now);
    }
    if (!waiting) this.#pending.delete(position);
    else for (const name of holdNames(message)) this.#removeWaiting(position, name);
  }

  #removeWaiting(position: number, name: string): void {
    const hold = this.#holds.get(name);
    hold?.rows.delete(position);
    if (hold?.rows.size === 0 && hold.dueAt !== Number.POSITIVE_INFINITY) this.#holds.delete(name);
  }

  #holdsOver(message: Message): Hold[] {
    return holdNames(message).flatMap((name) => this.#holds.get(name) ?? []);
  }

  pending(): StoredRow[] {
    return this.#pending.first(Number.POSITIVE_INFINITY);
  }

  waiting(): WaitingRow[] {
    return [...this.#holds.values()].flatMap(({ rows, dueAt }) =>
      rows.first(Number.POSITIVE_INFINITY).map((row) => ({ ...row, dueAt })),
    );
  }

  /** What is held: keys, and messages by themselves. */
  holds(): { readonly name: string; readonly byKey: boolean; readonly dueAt: number }[] {
    return [...this.#holds].map(([name, { dueAt }]) => {
      const byKey = !name.startsWith(holdOfId({ id: "" }));
      return { name: byKey ? name : name.slice(1), byKey, dueAt };
    });
  }
}

export function byPosition(a: Pick<Row, "position">, b: Pick<Row, "position">): number {
  return a.position - b.position;
}

/** Bytes are the one part of a message that can be written to: who holds a row must not reach into the box by it. */
export function copyOf(message: Message): Message {
  return Object.freeze({ ...message, data: new Uint8Array(message.data) });
}

function shown(row: StoredRow, waiting: boolean, held: boolean): Row {
  const { lane, position, message, attempts, crashes, turn = 0 } = row;
  return { lane, position, message: copyOf(message), attempts, crashes, waiting, held, ...(waiting && { turn }) };
}
