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

/** The unsent rows of one lane, and their holds. It does not check ownership; the caller has checked the epoch. */
export class BoxLane {
  readonly #pending = new OrderedRows<StoredRow>();
  readonly #holds = new Map<string, Hold>();

  /** A row with the name of a hold waits under that hold. */
  add(row: StoredRow): void {
    this.#rowsOf(row)?.set(row.position, row);
  }

  read(after: number, limit: number): Row[] {
    return this.#pending.first(limit, after).map((row) => seen(row, this.#isHeld(row)));
  }

  /** Leaves out rows that are held under `except`: a key, or U+0001 and an id. */
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

  /** A message without a key waits behind no other, not even behind one with the same id. */
  #isHeld({ message: { key } }: StoredRow): boolean {
    return key !== undefined && this.#holds.has(key);
  }

  /** Stores how often a row was in flight when a process crashed or a connection was lost. */
  suspect({ crashes, ...read }: Row): void {
    for (const rows of this.#places(read)) {
      const row = rows.get(read.position);
      if (row?.message.id === read.message.id) rows.set(row.position, { ...row, crashes });
    }
  }

  /** The row at the place of one that was read, whatever its message is, and the holds that either may be under. */
  loaded(read: Row): { readonly row: StoredRow | undefined; readonly holds: readonly SettledHold[] } {
    const row = this.#places(read).flatMap((rows) => rows.get(read.position) ?? [])[0];
    const names = new Set([read.message, ...(row === undefined ? [] : [row.message])].flatMap(holdNames));
    const holds = [...names].flatMap((name) => {
      const hold = this.#holds.get(name);
      return hold === undefined ? [] : [{ lane: read.lane, name, dueAt: hold.dueAt, waiting: hold.rows.size }];
    });
    return { row, holds };
  }

  /** Writes the outcome of one row, as far as this lane is concerned. */
  write({ before, to, after }: RowWrite<StoredRow>): void {
    this.#rowsOf(before)?.delete(before.position);
    if (to === "pending" || to === "wait") this.add(after);
  }

  hold({ name, dueAt }: Pick<SettledHold, "name" | "dueAt">): void {
    const hold = this.#holds.get(name);
    if (hold === undefined) this.#holds.set(name, { dueAt, rows: new OrderedRows() });
    else hold.dueAt = dueAt;
  }

  /** Ends a hold that no row waits under. */
  free(name: string): void {
    this.#holds.delete(name);
  }

  #rowsOf({ hold }: StoredRow): OrderedRows<StoredRow> | undefined {
    return hold === undefined ? this.#pending : this.#holds.get(hold)?.rows;
  }

  /** The places where a row that was read like this may be. */
  #places({ message, waiting }: Pick<Row, "message" | "waiting">): OrderedRows<StoredRow>[] {
    return waiting ? holdNames(message).flatMap((name) => this.#holds.get(name)?.rows ?? []) : [this.#pending];
  }

  /**
   * Whether the row that was read is here, with the same message and the same turn. An operator may have put it back
   * since. After a lost commit, its position may belong to another message.
   */
  has(read: Row): boolean {
    return this.#places(read).some((rows) => {
      const row = rows.get(read.position);
      return row?.message.id === read.message.id && (!read.waiting || (row.turn ?? 0) === (read.turn ?? 0));
    });
  }

  /**
   * Puts a parked row back to its place, ahead of all rows that wait there. `letsGo` releases a hold that only an
   * operator can release. Returns false if its key is not held.
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
   * Makes a held key due now. With `onlyForGood`, only if an operator has to release it. Rows that were read while it
   * was held queue up under a new hold.
   */
  letGo(key: string, now: number, onlyForGood = false): boolean {
    const hold = this.#holds.get(key);
    if (onlyForGood && hold?.dueAt !== forGood) return false;
    if (hold !== undefined) hold.dueAt = Math.min(hold.dueAt, now);
    if (hold?.rows.size === 0) this.#holds.delete(key);
    return hold !== undefined;
  }

  /** Makes a waiting row due now, unless an operator has to release its key. */
  retryNow(row: Pick<StoredRow, "position" | "hold">, now: number): void {
    const hold = this.#holds.get(row.hold ?? "");
    const stored = hold?.rows.get(row.position);
    if (hold === undefined || stored === undefined) return;
    hold.rows.set(row.position, { ...stored, attempts: 0 });
    if (hold.dueAt !== forGood) hold.dueAt = Math.min(hold.dueAt, now);
  }

  /** Removes a row for good. Rows that waited behind it become due. */
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

  /** Each row with the time at which its hold is due. */
  waiting(): StoredRow[] {
    return [...this.#holds.values()].flatMap(({ rows, dueAt }) =>
      rows.first(Number.POSITIVE_INFINITY).map((row) => ({ ...row, dueAt })),
    );
  }

  /** `byKey`: the name is a key, not the id of a message that waits alone. */
  holds(): { readonly name: string; readonly byKey: boolean; readonly dueAt: number }[] {
    return [...this.#holds].map(([name, { dueAt }]) => ({
      name,
      byKey: !name.startsWith(holdOfId({ id: "" })),
      dueAt,
    }));
  }
}
