import type { Order, Row, Settlement } from "../../store.js";
import { aloneFrom } from "../isolation/suspicion.js";
import { createReads } from "../reading/reads.js";
import { bytesOf, Flights } from "./flights.js";
import { KeyQueue } from "./key-queue.js";
import { Sendable } from "./sendable.js";

/** What a read brought: how many rows were not known yet, and the rows that go to `wait` because their key is held. */
export interface Arrival {
  readonly fresh: number;
  readonly held: readonly Row[];
}

export interface WindowOptions {
  /** Whether the sender keeps the order of a key within a batch. Then several rows of one key may be in flight. */
  readonly keepsOrder: boolean;
  /** With `total`, all rows have one key; with `none`, rows are independent. Defaults to `key`. */
  readonly order?: Order;
  /** Called for each row when it becomes known; returns the row to use. Defaults to the row as it is stored. */
  seen?(row: Row): Row;
}

/** The single key of a total order. */
const everything = "";

/**
 * The rows of a relay between reading and settling: which wait for their key, which can be sent, which are in flight.
 * It knows nothing of time, senders or stores.
 *
 * Whether a key is held is checked here and not in the read: a row may have been read before the failure of an earlier
 * row of its key was stored. Reads are numbered for this, in the order in which they began.
 *
 * In a total order, all lanes are one: to forget or drop one lane does so with all.
 */
export class Window {
  readonly #options: WindowOptions;
  /** Whether a failed row stays in its place, and the rows behind it are read again after it. */
  readonly #inPlace: boolean;
  readonly #keys = new Map<string, KeyQueue>();
  readonly #sendable = new Sendable();
  readonly #flights = new Flights();
  readonly #reads = createReads();
  /** By lane, the positions that are buffered, in flight or not settled. */
  readonly #live = new Map<number, Set<number>>();
  /** By lane. */
  readonly #bufferedIn: number[] = [];
  /** Whether `#keys` may contain idle queues: the end of the last read in progress removes them. */
  #hasRemains = false;
  /**
   * The row that was sent alone, until its outcome is stored. If the process crashes before that, only this row may be
   * suspected.
   */
  #isolated: Row | undefined;
  /** How many rows are not in flight yet. */
  buffered = 0;
  bufferedBytes = 0;

  constructor(options: WindowOptions) {
    this.#options = options;
    this.#inPlace = options.order === "total";
  }

  /** About how many rows could be sent now. The others wait for an earlier row of their key. */
  get sendable(): number {
    return this.#sendable.size;
  }

  get inFlight(): number {
    return this.#flights.count;
  }

  get inFlightBytes(): number {
    return this.#flights.bytes;
  }

  /** In a total order, whether a row has failed and that is not stored yet. Until then, no rows are accepted. */
  get isHeldUp(): boolean {
    return this.#inPlace && this.#keys.get(everything)?.isUnstored === true;
  }

  /** How many buffered rows belong to a lane. */
  bufferedIn(lane: number): number {
    return this.#bufferedIn[lane] ?? 0;
  }

  /** Begins a read and returns its number. */
  beginRead(): number {
    return this.#reads.begin();
  }

  /**
   * Ends a read and accepts its rows. If the key of one is held, it goes to `wait`, with all rows of its key that came
   * from `pending` and were not sent yet.
   */
  endRead(read: number, rows: readonly Row[]): Arrival {
    const held: Row[] = [];
    let fresh = 0;
    for (const row of rows) {
      if (this.#live.get(row.lane)?.has(row.position) || this.#reads.isPast(row, read)) continue;
      const key = this.#keyOf(row);
      const queue = key === undefined ? undefined : this.#keys.get(key);
      const tooOld = queue?.isNewerThan(read) ?? false;
      // It will be read again.
      if (this.#inPlace ? tooOld : row.waiting && queue?.isOvertaking(row, read)) continue;
      fresh++;
      this.#takeIn(row, key, queue, !this.#inPlace && !row.waiting && (row.held || tooOld), held);
    }
    this.#reads.end(read);
    if (this.#hasRemains && !this.#reads.underWay) {
      this.#hasRemains = false;
      for (const [key, queue] of this.#keys) this.#tidy(key, queue);
    }
    return { fresh, held };
  }

  #takeIn(found: Row, key: string | undefined, known: KeyQueue | undefined, isHeld: boolean, held: Row[]): void {
    const row = this.#options.seen?.(found) ?? found;
    const live = this.#live.get(row.lane);
    if (live === undefined) this.#live.set(row.lane, new Set([row.position]));
    else live.add(row.position);
    if (key !== undefined && isHeld) {
      const queue = known ?? this.#queueOf(key, row.lane);
      held.push(...this.#withdraw(queue, row), row);
      queue.fails(row);
      return;
    }
    this.#buffer(row);
    if (key === undefined) this.#sendable.add(row);
    else {
      const queue = known ?? this.#queueOf(key, row.lane);
      queue.add(row);
      this.#list(queue);
    }
  }

  /**
   * A row goes to `wait`. The buffered rows of its key that are stored in `pending` have to go with it, and are
   * returned: the next owner of the lane would send what is in `wait` first. Rows in `wait` behind it are read again,
   * after it.
   */
  #withdraw(queue: KeyQueue, row: Row): readonly Row[] {
    if (queue.rows.length === 0) return [];
    const moving = queue.rows.filter((other) => !other.waiting);
    for (const other of moving) {
      this.#unbuffer(other);
      queue.fails(other);
    }
    const isOvertaking = (other: Row) => other.waiting && other.position > row.position;
    for (const other of queue.rows) if (isOvertaking(other)) this.#forget(other);
    queue.rows = queue.rows.filter((other) => other.waiting && !isOvertaking(other));
    if (queue.rows.length === 0) this.#sendable.unlist(queue);
    return moving;
  }

  /**
   * Puts the next rows in flight, in order per key, and returns them.
   *
   * A suspect is sent alone: only while nothing is in flight and everything sent before is `settled`, and with no other
   * row until its outcome is stored. `well` is false if no message was sent since the last lost connection. Then every
   * row that has a crash counts as a suspect, and waits as long as other rows can be sent.
   */
  take(maxRows: number, maxBytes: number, well = true, settled = true): Row[] {
    if (this.#isolated !== undefined) return [];
    const from = well ? aloneFrom : 1;
    const canIsolate = settled && this.inFlight === 0;
    if (well) this.#sendable.reconsider(from);
    if (well && this.#sendable.hasSuspects) return canIsolate ? this.#isolate() : [];
    const batch = this.#batch(maxRows, maxBytes, from);
    this.#sendable.tidy();
    if (batch.length === 0 && canIsolate && this.#sendable.hasSuspects) return this.#isolate();
    return batch;
  }

  #batch(maxRows: number, maxBytes: number, from: number): Row[] {
    const batch: Row[] = [];
    let bytes = 0;
    const put = (row: Row, queue?: KeyQueue) => {
      batch.push(row);
      bytes += bytesOf(row);
      this.#depart(row, queue);
    };
    const hasRoom = () => batch.length < maxRows && (batch.length === 0 || bytes < maxBytes);
    while (hasRoom()) {
      const next = this.#sendable.next(from);
      if (next === undefined) break;
      if (!(next instanceof KeyQueue)) {
        put(next);
        continue;
      }
      const most = this.#options.keepsOrder ? next.rows.length : Math.min(1, next.rows.length);
      let taken = 0;
      while (taken < most && hasRoom() && !((next.rows[taken] as Row).crashes >= from))
        put(next.rows[taken++] as Row, next);
      next.take(taken);
    }
    return batch;
  }

  #isolate(): Row[] {
    const row = this.#sendable.nextSuspect();
    this.#isolated = row;
    this.#depart(row, this.#queueWith(row));
    return [row];
  }

  #depart(row: Row, queue: KeyQueue | undefined): void {
    this.#flights.depart(row, queue);
    this.#unbuffer(row);
    queue?.departs(row);
  }

  /** The row was sent: the next one of its key can be. */
  sent(row: Row): void {
    const queue = this.#landed(row);
    if (queue === undefined) return;
    this.#list(queue);
    this.#tidy(this.#keyOf(row) as string, queue);
  }

  /**
   * The row failed. Returns the rows behind it, which go to `wait` with it. In a total order there are none, since the
   * row stays in its place.
   */
  failed(row: Row): readonly Row[] {
    const queue = this.#landed(row);
    if (queue === undefined) return [];
    queue.fails(row);
    if (queue.inFlight > 0) queue.ahead = "held";
    const moving: Row[] = [];
    for (const other of queue.rows.splice(0)) {
      // Rows that stay where they are will be read again: those in `wait` when their hold is due.
      if (this.#inPlace || other.waiting) this.#forget(other);
      else {
        this.#unbuffer(other);
        queue.fails(other);
        moving.push(other);
      }
    }
    return moving;
  }

  /**
   * The row is parked or dropped: its key goes on once that is stored. `alone`: the sender never had the row, so it
   * held no later row of its key back.
   */
  parked(row: Row, alone = false): void {
    const queue = this.#landed(row);
    if (queue === undefined) return;
    if (queue.inFlight > 0 && !alone) queue.ahead ??= "parked";
    queue.parks();
  }

  /** Whether an earlier row of its key has failed (held) or was parked, in the batch that this row was sent in. */
  ahead(row: Row): "held" | "parked" | undefined {
    return (this.#flights.queueOf(row) ?? this.#queueWith(row))?.ahead;
  }

  /**
   * Puts rows with an unknown outcome back to the front, in their order. With `crashed`, each counts one crash more.
   * Returns those that go to `wait` instead, because another row of their key goes there: they were behind it in their
   * batch, or it was read meanwhile and must not overtake them.
   */
  undecided(rows: readonly Row[], crashed = false): readonly Row[] {
    const behind: Row[] = [];
    this.#hasRemains = true;
    if (this.#isolated !== undefined && rows.includes(this.#isolated)) this.#isolated = undefined;
    for (const row of [...rows].reverse()) {
      const isBehind = this.ahead(row) === "held";
      const queue = this.#landed(row);
      const isJoining = !this.#inPlace && !row.waiting && queue?.isUnstored === true;
      if ((isBehind || isJoining) && queue !== undefined) {
        if (this.#falls(row, queue)) behind.unshift(row);
        continue;
      }
      this.#buffer(row);
      const again = crashed ? { ...row, crashes: row.crashes + 1 } : row;
      if (queue === undefined) this.#sendable.add(again);
      else queue.rows.unshift(again);
    }
    for (const row of rows) {
      const queue = this.#queueWith(row);
      if (queue !== undefined) this.#list(queue);
    }
    return behind;
  }

  /** Whether a row without an outcome has to go to `wait` with others of its key. It may be there already. */
  #falls(row: Row, queue: KeyQueue): boolean {
    // Later rows in `wait` that were read meanwhile would overtake it. They are read again, after it.
    const isOvertaking = (other: Row) => other.waiting && other.position > row.position;
    for (const other of queue.rows) if (isOvertaking(other)) this.#forget(other);
    queue.rows = queue.rows.filter((other) => !isOvertaking(other));
    if (row.waiting) this.#live.get(row.lane)?.delete(row.position);
    else queue.fails(row);
    return !row.waiting;
  }

  /** The settle of this row has committed. */
  settled(row: Row, to: Settlement["to"]): void {
    if (row === this.#isolated) this.#isolated = undefined;
    const known = this.#live.get(row.lane)?.delete(row.position) ?? false;
    this.#reads.settled(row);
    // Its key advanced when the row was sent.
    if (to === "sent") return;
    const queue = this.#queueWith(row);
    // Its lane may have been dropped, and even regained, while the settle was under way. Then nothing here depends on
    // it.
    if (!known || queue === undefined) return;
    queue.stored(row, to, this.#reads);
    this.#list(queue);
    this.#tidy(this.#keyOf(row) as string, queue);
  }

  /**
   * The row was sent although its outcome had been unknown. Removes it if it is buffered, so that it is not sent again;
   * false if it is not.
   */
  sentAfterAll(row: Row): boolean {
    const queue = this.#queueWith(row);
    if (queue === undefined) {
      if (!this.#sendable.remove(row)) return false;
    } else {
      const place = queue.rows.indexOf(row);
      if (place < 0) return false;
      queue.rows.splice(place, 1);
      if (queue.rows.length === 0) this.#sendable.unlist(queue);
      this.#tidy(this.#keyOf(row) as string, queue);
    }
    this.#unbuffer(row);
    return true;
  }

  /** Whether an earlier row of its key is in flight that is stored in `pending`, not in `wait`. */
  hasEarlierOnItsWay(row: Row): boolean {
    return this.#queueWith(row)?.hasEarlierInFlight(row) ?? false;
  }

  /** Whether the row is in flight. False once its lane was dropped: the new owner decides about the row. */
  isOnItsWay(row: Row): boolean {
    return this.#flights.has(row);
  }

  /** Whether no row of a lane is buffered, in flight or unsettled. */
  isIdle(lane: number): boolean {
    return (this.#live.get(lane)?.size ?? 0) === 0;
  }

  /** Forgets the rows of a lane that are not in flight yet. They are still stored, and the next owner reads them. */
  forget(lane: number): void {
    this.#hasRemains = true;
    for (const row of this.#sendable.rows()) if (this.#isIn(lane, row)) this.#forget(row);
    this.#sendable.removeAll((entry) => this.#isIn(lane, entry));
    for (const queue of this.#keys.values()) {
      if (this.#isIn(lane, queue)) for (const row of queue.rows.splice(0)) this.#forget(row);
    }
  }

  /** Forgets every row of a lost lane. */
  drop(lane: number): void {
    if (this.#isolated !== undefined && this.#isIn(lane, this.#isolated)) this.#isolated = undefined;
    this.forget(lane);
    for (const row of this.#flights.rows) if (this.#isIn(lane, row)) this.#landed(row);
    for (const [key, queue] of this.#keys) if (this.#isIn(lane, queue)) this.#keys.delete(key);
    if (this.#inPlace) this.#live.clear();
    else this.#live.delete(lane);
  }

  /** The positions of a lane above `after`, up to `upTo`, that are known here or were settled during a read. */
  known(lane: number, after: number, upTo: number): number[] {
    const positions = [...(this.#live.get(lane) ?? []), ...this.#reads.past(lane)];
    return positions.filter((position) => position > after && position <= upTo);
  }

  /** The holds of the rows that were read from `wait` and are not settled yet, each with its lane. */
  waitingUnder(): ReadonlyMap<string, number> {
    const found = new Map<string, number>();
    const add = (row: Row) => row.waiting && found.set(this.#keyOf(row) ?? `\u0001${row.message.id}`, row.lane);
    for (const row of this.#flights.rows) add(row);
    for (const row of this.#sendable.rows()) add(row);
    for (const { rows } of this.#keys.values()) for (const row of rows) add(row);
    return found;
  }

  #keyOf({ message }: Row): string | undefined {
    const { order = "key" } = this.#options;
    if (order === "key") return message.key;
    return order === "total" ? everything : undefined;
  }

  #isIn(lane: number, what: { readonly lane: number }): boolean {
    return this.#inPlace || what.lane === lane;
  }

  #queueWith(row: Row): KeyQueue | undefined {
    const key = this.#keyOf(row);
    return key === undefined ? undefined : this.#keys.get(key);
  }

  #queueOf(key: string, lane: number): KeyQueue {
    const known = this.#keys.get(key);
    if (known !== undefined) return known;
    const queue = new KeyQueue(lane);
    this.#keys.set(key, queue);
    return queue;
  }

  #landed(row: Row): KeyQueue | undefined {
    const queue = this.#flights.land(row) ?? this.#queueWith(row);
    queue?.landed(row);
    return queue;
  }

  #list(queue: KeyQueue): void {
    if (queue.canSend) this.#sendable.add(queue);
  }

  #tidy(key: string, queue: KeyQueue): void {
    if (queue.isOver(this.#reads)) this.#keys.delete(key);
    else if (queue.isIdle) this.#hasRemains = true;
  }

  #buffer(row: Row): void {
    this.buffered++;
    this.bufferedBytes += bytesOf(row);
    this.#bufferedIn[row.lane] = this.bufferedIn(row.lane) + 1;
  }

  #unbuffer(row: Row): void {
    this.buffered--;
    this.bufferedBytes -= bytesOf(row);
    this.#bufferedIn[row.lane] = this.bufferedIn(row.lane) - 1;
  }

  /** Removes a buffered row, as if it had not been read. */
  #forget(row: Row): void {
    this.#live.get(row.lane)?.delete(row.position);
    this.#unbuffer(row);
  }
}
