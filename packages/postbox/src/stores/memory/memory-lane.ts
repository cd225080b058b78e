import type { Message } from "../../message/message.js";
import type { LaneGap, LateRow, Row, Settlement } from "../../store.js";
import { keptFailures } from "../admin-options.js";
import { OrderedRows } from "./ordered-rows.js";

/** A message as a box keeps it. */
export interface StoredRow {
  readonly lane: number;
  readonly position: number;
  readonly message: Message;
  readonly attempts: number;
  readonly crashes: number;
  readonly error?: string;
  readonly createdAt: number;
  /** How often an operator has put it back to its place. Defaults to never. */
  readonly turn?: number;
  /** Of a parked one: whether it holds its key. */
  readonly holds?: boolean;
  /** When it came to where it is, or last failed there. */
  readonly updatedAt: number;
  /** The last tries that failed, oldest first. */
  readonly failures: readonly StoredFailure[];
}

interface StoredFailure {
  readonly attempt: number;
  readonly at: number;
  readonly error: string;
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

/** The rows of one lane: `pending`, `wait` and `hold`. Knows no owners; whoever calls `settle` has checked the epoch. */
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
      .filter(([name, { dueAt, rows }]) => dueAt <= now && rows.size > 0 && !except.has(heldUnder(name)))
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
    return key !== undefined && this.#holds.has(keyHold(key));
  }

  /** Notes how often a row was on its way when something died. */
  suspect({ position, message, waiting, crashes }: Row): void {
    for (const rows of waiting ? holdsOf(message).map((name) => this.#holds.get(name)?.rows) : [this.#pending]) {
      const row = rows?.get(position);
      if (row?.message.id === message.id) rows?.set(position, { ...row, crashes });
    }
  }

  /** Moves one row to what became of it, and answers with it unless it stays here. A row that is gone stays gone. */
  settle(settlement: Settlement, now: number, alone: boolean): StoredRow | undefined {
    if (!this.has(settlement.row)) return undefined;
    const found = this.#take(settlement.row);
    if (found === undefined || settlement.to === "sent" || settlement.to === "dropped") return found?.row;
    const { attempts, error } = settlement;
    const row: StoredRow = {
      ...found.row,
      attempts,
      crashes: 0,
      updatedAt: now,
      ...(error !== undefined && {
        error,
        failures: [...found.row.failures, { attempt: attempts, at: now, error }].slice(-keptFailures),
      }),
    };
    const [byId, byKey = byId] = holdsOf(row.message);
    const name = found.hold ?? (alone ? byId : byKey);
    if (settlement.to === "parked") {
      const holds = settlement.hold === true;
      if (holds) this.#hold(name, now).dueAt = Number.POSITIVE_INFINITY;
      return { ...row, holds };
    }
    if (settlement.to === "pending") {
      this.#pending.set(row.position, row);
      return undefined;
    }
    // Its key's hold may have gone since the row was read. It is due at once then: without a hold nothing in `wait`
    // would ever be read.
    const hold = this.#hold(name, now);
    const forGood = hold.dueAt === Number.POSITIVE_INFINITY;
    if (settlement.retryInMs !== undefined && !forGood) hold.dueAt = now + settlement.retryInMs;
    hold.rows.set(row.position, row);
    return undefined;
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
   * Ends the holds of this message behind which nothing waits any more. Called after a whole settle: in between, the last row of a key may
   * have left before the next one arrives. Those that somebody has to free stay.
   */
  freeHolds(message: Message): void {
    for (const name of holdsOf(message)) {
      const hold = this.#holds.get(name);
      if (hold?.rows.size === 0 && hold.dueAt !== Number.POSITIVE_INFINITY) this.#holds.delete(name);
    }
  }

  #hold(name: string, now: number): Hold {
    const hold = this.#holds.get(name) ?? { dueAt: now, rows: new OrderedRows<StoredRow>() };
    this.#holds.set(name, hold);
    return hold;
  }

  /**
   * Puts a parked row back to its place, before all that wait there; `letsGo` what was held for good. False: nothing is held
   * by it or its key.
   */
  putBack(row: StoredRow, letsGo: boolean, now: number): boolean {
    const hold = holdsOf(row.message)
      .map((name) => this.#holds.get(name))
      .find((each) => each !== undefined);
    if (hold === undefined) return false;
    hold.rows.set(row.position, row);
    if (letsGo && hold.dueAt === Number.POSITIVE_INFINITY) hold.dueAt = now;
    return true;
  }

  /**
   * Lets a key go on now. `onlyForGood` leaves one alone that will end by itself. What was read while it was held queues up
   * behind a hold that is made anew.
   */
  letGo(key: string, now: number, onlyForGood = false): boolean {
    const hold = this.#holds.get(keyHold(key));
    if (onlyForGood && hold?.dueAt !== Number.POSITIVE_INFINITY) return false;
    if (hold !== undefined) hold.dueAt = Math.min(hold.dueAt, now);
    if (hold?.rows.size === 0) this.#holds.delete(keyHold(key));
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
    this.#take({ position, message, waiting });
    if (waiting) this.freeHolds(message);
  }

  #holdsOver(message: Message): Hold[] {
    return holdsOf(message).flatMap((name) => this.#holds.get(name) ?? []);
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
      return { name: name.slice(name.indexOf(" ") + 1), byKey: name.startsWith(keyHold("")), dueAt };
    });
  }

  /** Takes a row out, and tells under which hold it waited. */
  #take({
    position,
    message,
    waiting,
  }: Pick<Row, "position" | "message" | "waiting">): { readonly row: StoredRow; readonly hold?: string } | undefined {
    if (!waiting) {
      const row = this.#pending.delete(position);
      return row && { row };
    }
    for (const hold of holdsOf(message)) {
      const row = this.#holds.get(hold)?.rows.delete(position);
      if (row !== undefined) return { row, hold };
    }
    return undefined;
  }
}

export function byPosition(a: Pick<Row, "position">, b: Pick<Row, "position">): number {
  return a.position - b.position;
}

/** Bytes are the one part of a message that can be written to: who holds a row must not reach into the box by it. */
export function copyOf(message: Message): Message {
  return Object.freeze({ ...message, data: new Uint8Array(message.data) });
}

/** What a message may be held under: by itself, and by its key. The prefix keeps an id from meeting another's key. */
function holdsOf({ key, id }: Message): [string] | [string, string] {
  return key === undefined ? [`id ${id}`] : [`id ${id}`, keyHold(key)];
}

/** As a reader names it. */
function heldUnder(name: string): string {
  return name.startsWith(keyHold("")) ? name.slice(keyHold("").length) : `\u0001${name.slice("id ".length)}`;
}

function keyHold(key: string): string {
  return `key ${key}`;
}

function shown(row: StoredRow, waiting: boolean, held: boolean): Row {
  const { lane, position, message, attempts, crashes, turn = 0 } = row;
  return { lane, position, message: copyOf(message), attempts, crashes, waiting, held, ...(waiting && { turn }) };
}
