import type { LaneGap, LateRow, Row } from "../../store.js";
import { holdNames, holdOfId, type RowWrite, type SettledHold } from "../settle-plan.js";
import { OrderedRows } from "./ordered-rows.js";
import { byPosition, type StoredRow, seen } from "./stored-row.js";

/** A key whose next message waits for a retry, with everything that waits behind it. */
interface Hold {
  dueAt: number;
  readonly rows: OrderedRows<StoredRow>;
}

const forGood = Number.POSITIVE_INFINITY;

/** The rows of one lane that are still to be sent, and what holds them. Knows no owners: the caller has checked the epoch. */
export class BoxLane {
  readonly #pending = new OrderedRows<StoredRow>();
  readonly #holds = new Map<string, Hold>();

  /** With the name of a hold, the row waits under it. */
  add(row: StoredRow): void {
    this.#rowsOf(row)?.set(row.position, row);
  }

  read(after: number, limit: number): Row[] {
    return this.#pending.first(limit, after).map((row) => seen(row, this.#isHeld(row)));
  }

  /** Without what is held under `except`: a key, or U+0001 and an id. */
  due(limit: number, now: number, except: ReadonlySet<string>): Row[] {
    const holds = [...this.#holds]
      .filter(([name, { dueAt, rows }]) => dueAt <= now && rows.size > 0 && !except.has(name))
      .map(([, hold]) => hold)
      .sort((one, other) => one.dueAt - other.dueAt)
      .slice(0, limit);
    const rows = holds.flatMap((hold) => hold.rows.first(Math.floor(limit / holds.length)));
    return rows.sort(byPosition).map((row) => seen(row, false));
  }

  late({ after, upTo, known }: LaneGap, now: number): LateRow[] {
    const found = new Set(known);
    return this.#pending
      .first(Number.POSITIVE_INFINITY, after)
      .filter(({ position }) => position <= upTo && !found.has(position))
      .map((row) => ({ ...seen(row, this.#isHeld(row)), ageMs: now - row.createdAt }));
  }

  /** A message without a key stands behind nobody, not even another one of the same id. */
  #isHeld({ message: { key } }: StoredRow): boolean {
    return key !== undefined && this.#holds.has(key);
  }

  /** Notes how often a row was in flight when a process or a connection died. */
  suspect({ crashes, ...read }: Row): void {
    for (const rows of this.#places(read)) {
      const row = rows.get(read.position);
      if (row?.message.id === read.message.id) rows.set(row.position, { ...row, crashes });
    }
  }

  /** The row at the place of one that was read, whichever message it has; and the holds that either may be under. */
  loaded(read: Row): { readonly row: StoredRow | undefined; readonly holds: readonly SettledHold[] } {
    const row = this.#places(read).flatMap((rows) => rows.get(read.position) ?? [])[0];
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
    if (to === "pending" || to === "wait") this.add(after);
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

  /** Where a row may be that was read so. */
  #places({ message, waiting }: Pick<Row, "message" | "waiting">): OrderedRows<StoredRow>[] {
    return waiting ? holdNames(message).flatMap((name) => this.#holds.get(name)?.rows ?? []) : [this.#pending];
  }

  /**
   * Whether this row is here, the same message and of the turn that was read: an operator may have put it back since, to be
   * settled anew, and after a lost commit its position may be another message's.
   */
  has(read: Row): boolean {
    return this.#places(read).some((rows) => {
      const row = rows.get(read.position);
      return row?.message.id === read.message.id && (!read.waiting || (row.turn ?? 0) === (read.turn ?? 0));
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
    if (letsGo && hold.dueAt === forGood) hold.dueAt = now;
    return true;
  }

  /**
   * Lets a key go on now. `onlyForGood` leaves one alone that will end by itself. What was read while it was held queues up
   * behind a hold that is made anew.
   */
  letGo(key: string, now: number, onlyForGood = false): boolean {
    const hold = this.#holds.get(key);
    if (onlyForGood && hold?.dueAt !== forGood) return false;
    if (hold !== undefined) hold.dueAt = Math.min(hold.dueAt, now);
    if (hold?.rows.size === 0) this.#holds.delete(key);
    return hold !== undefined;
  }

  /** Lets a waiting row be tried now, unless an operator has to release its key. */
  retryNow(row: StoredRow, now: number): void {
    const hold = this.#holds.get(row.hold ?? "");
    if (hold === undefined) return;
    hold.rows.set(row.position, { ...row, attempts: 0 });
    if (hold.dueAt !== forGood) hold.dueAt = Math.min(hold.dueAt, now);
  }

  /** Takes a row out for good. Rows that waited behind it go on now. */
  remove(row: StoredRow, now: number): void {
    const hold = row.hold === undefined ? undefined : this.#holds.get(row.hold);
    const wasFirst = hold?.rows.first(1)[0]?.position === row.position;
    this.#rowsOf(row)?.delete(row.position);
    if (hold === undefined || hold.dueAt === forGood) return;
    if (hold.rows.size === 0) this.#holds.delete(row.hold ?? "");
    else if (wasFirst) hold.dueAt = Math.min(hold.dueAt, now);
  }

  pending(): StoredRow[] {
    return this.#pending.first(Number.POSITIVE_INFINITY);
  }

  /** Each with the moment at which its hold is due. */
  waiting(): StoredRow[] {
    return [...this.#holds.values()].flatMap(({ rows, dueAt }) =>
      rows.first(Number.POSITIVE_INFINITY).map((row) => ({ ...row, dueAt })),
    );
  }

  /** `byKey`: the name is a key, and not that of a message that waits alone. */
  holds(): { readonly name: string; readonly byKey: boolean; readonly dueAt: number }[] {
    return [...this.#holds].map(([name, { dueAt }]) => ({
      name,
      byKey: !name.startsWith(holdOfId({ id: "" })),
      dueAt,
    }));
  }
}
