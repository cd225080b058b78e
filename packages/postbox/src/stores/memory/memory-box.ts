import type { AuditEntry, BoxStats, Status } from "../../admin.js";
import { laneCount, laneOf } from "../../internal/lane.js";
import type { Message } from "../../message/message.js";
import {
  type Aside,
  type Box,
  type DueOptions,
  defaultReadBytes,
  type Lane,
  type LaneGap,
  type LaneRead,
  type LaneRows,
  type LateRows,
  type Membership,
  type Order,
  type OwnOptions,
  type Promoted,
  type ReadOptions,
  type Row,
  type Settled,
  type Settlement,
  type SettleOptions,
  type TakenLane,
} from "../../store.js";
import { statuses } from "../admin-options.js";
import { asideSettlement, settlePlan } from "../settle-plan.js";
import { WriterRanges } from "../writer-ranges.js";
import { byPosition, copyOf, MemoryLane, type StoredRow } from "./memory-lane.js";
import { MemoryOwners } from "./memory-owners.js";
import { dueTimeOf, MemorySchedule, type ScheduledRow, type ScheduleKey, unscheduled } from "./memory-schedule.js";
import { OrderedRows } from "./ordered-rows.js";

/** What a box holds, for tests and operators. Only what is committed; each list in order of position. */
export interface BoxContents {
  readonly pending: readonly Message[];
  readonly wait: readonly Message[];
  /** The held keys, sorted; for a message without a key its id. */
  readonly holds: readonly string[];
  /** What is not due yet, by numbers of its own. */
  readonly scheduled: readonly Message[];
  readonly parked: readonly { readonly message: Message; readonly attempts: number; readonly error: string }[];
  /** What was sent, where the relay keeps it. */
  readonly done: readonly Message[];
}

/** Rows that have their positions and are not visible yet. The number is that of their append. */
export interface Placed {
  readonly number: number;
  readonly rows: readonly StoredRow[];
  readonly scheduled: readonly ScheduledRow[];
}

/** What an open transaction is about to do to the schedule of a box, locked until it has ended. */
export type IsScheduleLocked = (message: Message) => boolean;

/** A row as an operator sees it. */
export interface StatusRow extends StoredRow {
  readonly status: Status;
  /** When it goes on, where that is known; infinite where somebody has to release it. */
  readonly dueAt?: number;
}

/** Writes into the audit, in the same step as the change itself. */
export type WriteAudit = (entry: Omit<AuditEntry, "number" | "at" | "box">) => void;

/**
 * A box in memory. Each verb does its work in one synchronous step, which is what a database's statement is to others:
 * no take-over can come between the check of an epoch and the writes that rest on it.
 */
export class MemoryBox implements Box {
  readonly inCommitOrder: boolean;
  readonly #now: () => number;
  readonly #lanes = Array.from({ length: laneCount }, () => new MemoryLane());
  readonly #owners: MemoryOwners;
  readonly #schedule = new MemorySchedule();
  readonly #parked = new OrderedRows<StoredRow>();
  readonly #done = new OrderedRows<StoredRow>();
  readonly #audit: WriteAudit;
  readonly #processed: (() => StoredRow[]) | undefined;
  readonly #isScheduleLocked: IsScheduleLocked;
  /** The appends whose transactions have not ended. */
  readonly #open = new Set<number>();
  #lastAppend = 0;
  #lastPosition = 0;
  /** While it is paused, nobody gets lanes. */
  pausedAt: number | undefined;
  /** Whether somebody removes what is done. */
  cleaning = false;

  /** With `processed`, what is done is what that says. */
  constructor(
    now: () => number,
    audit: WriteAudit,
    isScheduleLocked: IsScheduleLocked,
    inCommitOrder: boolean,
    processed?: () => StoredRow[],
  ) {
    this.#now = now;
    this.inCommitOrder = inCommitOrder;
    this.#isScheduleLocked = isScheduleLocked;
    this.#processed = processed;
    this.#audit = audit;
    this.#owners = new MemoryOwners(now);
  }

  get paused(): boolean {
    return this.pausedAt !== undefined;
  }

  /** The database's clock. */
  get now(): number {
    return this.#now();
  }

  /** Gives messages their positions, as an identity column does: before the commit, and for good even without one. */
  place(messages: readonly Message[]): Placed {
    const number = ++this.#lastAppend;
    this.#open.add(number);
    const now = this.#now();
    const rows: StoredRow[] = [];
    const scheduled: ScheduledRow[] = [];
    for (const message of messages) {
      const dueAt = dueTimeOf(message);
      if (dueAt === undefined || (dueAt <= now && message.scheduleKey === undefined))
        rows.push(this.#fresh(unscheduled(message), now));
      else scheduled.push({ ...fresh(message, this.#schedule.nextPosition(), now), dueAt });
    }
    return { number, rows, scheduled };
  }

  #fresh(message: Message, now: number): StoredRow {
    return fresh(message, ++this.#lastPosition, now);
  }

  /** Makes placed rows visible. In commit order, they get their positions only now. */
  insert({ number, rows, scheduled }: Placed): void {
    this.#open.delete(number);
    for (const row of rows) {
      this.#lane(row.lane).add(this.inCommitOrder ? { ...row, position: ++this.#lastPosition } : row);
    }
    for (const row of scheduled) this.#schedule.add(row);
  }

  isScheduled(key: ScheduleKey): boolean {
    return this.#schedule.has(key);
  }

  cancel(key: ScheduleKey): void {
    this.#schedule.cancel(key);
  }

  /** Never makes them visible. */
  discard({ number }: Placed): void {
    this.#open.delete(number);
  }

  async renew(owner: string, leaseMs: number, order: Order): Promise<Membership> {
    return { paused: this.paused, ...this.#owners.renew(owner, leaseMs, order) };
  }

  async own(owner: string, most: number, options?: OwnOptions): Promise<readonly TakenLane[]> {
    return this.paused ? [] : this.#owners.own(owner, most, options);
  }

  async release(owner: string, lanes?: readonly Lane[]): Promise<void> {
    this.#owners.release(owner, lanes);
  }

  async read(lanes: readonly LaneRead[], { maxBytes = defaultReadBytes }: ReadOptions = {}): Promise<LaneRows> {
    const more = new Set<number>();
    const rows: Row[] = [];
    let bytes = 0;
    for (const { lane, after = 0, limit } of lanes) {
      let found = 0;
      for (const row of this.#lane(lane).read(after, limit)) {
        if (bytes >= maxBytes) break;
        bytes += bytesOf(row);
        found++;
        rows.push(row);
      }
      if (found >= limit || bytes >= maxBytes) more.add(lane);
    }
    return { rows, ...this.#writers(), more, drawn: this.#lastPosition };
  }

  async due(
    lanes: readonly Omit<LaneRead, "after">[],
    { maxBytes = defaultReadBytes, except = [] }: DueOptions = {},
  ): Promise<readonly Row[]> {
    const now = this.#now();
    const known = new Set(except);
    return upTo(
      maxBytes,
      lanes.flatMap(({ lane, limit }) => this.#lane(lane).due(limit, now, known)),
    );
  }

  async late(
    gaps: readonly LaneGap[],
    limit: number,
    { maxBytes = defaultReadBytes }: ReadOptions = {},
  ): Promise<LateRows> {
    const now = this.#now();
    const all = gaps.flatMap((gap) => this.#lane(gap.lane).late(gap, now)).sort(byPosition);
    const rows = upTo(maxBytes, all.slice(0, limit));
    return { rows, ...this.#writers(), more: rows.length < all.length };
  }

  #writers(): Pick<LaneRows, "writers"> {
    if (this.inCommitOrder) return {};
    const numbers = [...this.#open].sort((a, b) => a - b);
    return { writers: new WriterRanges(numbers.map((from) => ({ from, to: from + 1 }))) };
  }

  async settle(
    lanes: readonly Lane[],
    settlements: readonly Settlement[],
    { keep = false, alone = false }: SettleOptions = {},
  ): Promise<Settled> {
    const standing = this.#owners.standing(lanes);
    const fenced = settlements.filter(({ row }) => standing.has(row.lane));
    this.#settle(fenced, { keep, alone });
    return { standing };
  }

  #settle(settlements: readonly Settlement[], { keep = false, ...options }: SettleOptions = {}): void {
    const now = this.#now();
    const loaded = settlements.map(({ row }) => this.#lane(row.lane).loaded(row));
    const rows = loaded.flatMap(({ row }) => row ?? []);
    const plan = settlePlan({ rows, holds: loaded.flatMap(({ holds }) => holds), now }, settlements, options);
    for (const hold of plan.held) this.#lane(hold.lane).hold(hold);
    for (const { before, to, after: settled } of plan.rows) {
      const after = { ...settled, updatedAt: now };
      this.#lane(before.lane).write({ before, to, after });
      if (to === "parked") this.#parked.set(after.position, after);
      else if (to === "sent" && keep) this.#done.set(after.position, after);
    }
    for (const { lane, name } of plan.freed) this.#lane(lane).free(name);
    for (const { reason, ids } of plan.drops)
      this.#audit({ action: "drop", by: "relay", reason, count: ids.length, ids });
  }

  /** Puts a message aside that was never here. */
  setAside(message: Message, aside: Aside): void {
    const row = this.#fresh(message, this.#now());
    const lane = this.#lane(row.lane);
    lane.add(row);
    const read = { ...row, waiting: false, held: false };
    this.#settle([asideSettlement(read, aside, lane.loaded(read).holds)]);
  }

  /** Whether this row is here as it was read, in a lane whose epoch stands. */
  has(row: Row, epoch: number): boolean {
    return this.#owners.standing([{ lane: row.lane, epoch }]).size > 0 && this.#lane(row.lane).has(row);
  }

  /** Takes out a row that was handled. */
  finish(row: Row): void {
    this.#settle([{ row, to: "sent" }]);
  }

  async promote(limit: number): Promise<Promoted> {
    const now = this.#now();
    const due = this.#schedule.takeDue(limit, now, this.#isScheduleLocked);
    for (const row of due) this.appendAgain(row);
    // If nothing could be appended, what is due is locked: it comes again with the next look, not at once.
    const next = this.#schedule.nextDueAt(due.length > 0 ? Number.NEGATIVE_INFINITY : now);
    return { count: due.length, ...(next !== undefined && { nextInMs: Math.max(0, next - now) }) };
  }

  async suspect(lanes: readonly Lane[], rows: readonly Row[]): Promise<ReadonlySet<number>> {
    const standing = this.#owners.standing(lanes);
    for (const row of rows) if (standing.has(row.lane)) this.#lane(row.lane).suspect(row);
    return standing;
  }

  /** In order of position. */
  rows(status: Status): StatusRow[] {
    return this.#rowsOf(status)
      .map((row) => ({ ...row, status }))
      .sort(byPosition);
  }

  #rowsOf(status: Status): StoredRow[] {
    switch (status) {
      case "pending":
        return this.#lanes.flatMap((lane) => lane.pending());
      case "waiting":
        return this.#lanes.flatMap((lane) => lane.waiting());
      case "scheduled":
        return this.#schedule.all();
      case "parked":
        return this.#parked.first(Number.POSITIVE_INFINITY);
      case "done":
        return this.#processed?.() ?? this.#done.first(Number.POSITIVE_INFINITY);
    }
  }

  remove({ status, lane, position, message }: StatusRow): void {
    if (status === "parked") {
      this.#parked.delete(position);
      const { key } = message;
      if (key !== undefined && !this.#isHeldByParked(key)) this.#lane(lane).letGo(key, this.#now(), true);
    } else if (status === "done") this.#done.delete(position);
    else if (status === "scheduled") this.#schedule.delete(position);
    else this.#lane(lane).remove(position, message, status === "waiting", this.#now());
  }

  #isHeldByParked(key: string): boolean {
    return this.rows("parked").some(({ message, holds }) => holds === true && message.key === key);
  }

  /** Appends a row anew: rows never go back to where a relay may have read on. */
  appendAgain({ message, failures, error }: Pick<StoredRow, "message" | "failures" | "error">): void {
    const row = {
      ...this.#fresh(unscheduled(message), this.#now()),
      failures,
      ...(error !== undefined && { error }),
    };
    this.#lane(row.lane).add(row);
  }

  /** Lets a row be tried again: a parked one anew, a waiting one now, and one that is pending by somebody else. */
  retry(row: StatusRow): void {
    if (row.status === "parked") this.#retryParked(row);
    else if (row.status === "waiting") this.#lane(row.lane).retryNow(row.position, row.message, this.#now());
    else this.#owners.disown([row.lane]);
  }

  /** A row that holds its key goes back to its place: appended anew it would come after those that wait for it. */
  #retryParked(row: StatusRow): void {
    const now = this.#now();
    const { status: _, holds: __, ...stored } = row;
    const { key } = row.message;
    this.#parked.delete(row.position);
    const reset = { ...stored, attempts: 0, crashes: 0, updatedAt: now, turn: (row.turn ?? 0) + 1 };
    const letsGo = key === undefined || !this.#isHeldByParked(key);
    if (!this.#lane(row.lane).putBack(reset, letsGo, now)) this.appendAgain(row);
  }

  /** Lets a held key go on now. False: it is not held. */
  letGo(key: string): boolean {
    return this.#lane(laneOf(key)).letGo(key, this.#now());
  }

  heldKeys(): BoxStats["heldKeys"] {
    const keys = this.#lanes.flatMap((lane) => lane.holds().filter(({ byKey }) => byKey));
    return { count: keys.length, forGood: keys.filter(({ dueAt }) => dueAt === Number.POSITIVE_INFINITY).length };
  }

  /** The keys that are held until an operator releases them. */
  keysHeldForGood(): string[] {
    const holds = this.#lanes.flatMap((lane) => lane.holds());
    return holds.filter(({ byKey, dueAt }) => byKey && dueAt === Number.POSITIVE_INFINITY).map(({ name }) => name);
  }

  sharing(): BoxStats["lanes"] {
    return this.#owners.sharing();
  }

  /** The members that live. */
  living(): ReturnType<MemoryOwners["living"]> {
    return this.#owners.living();
  }

  /** The lanes that nobody has who lives. */
  unownedLanes(): ReadonlySet<number> {
    return this.#owners.unownedLanes();
  }

  contents(): BoxContents {
    const messages = (status: Status) => this.rows(status).map((row) => copyOf(row.message));
    return {
      pending: messages("pending"),
      wait: messages("waiting"),
      holds: this.#lanes.flatMap((lane) => lane.holds().map(({ name }) => name)).sort(),
      scheduled: messages("scheduled"),
      parked: this.rows("parked").map(({ message, attempts, error = "" }) => ({
        message: copyOf(message),
        attempts,
        error,
      })),
      done: messages("done"),
    };
  }

  /** All there is to it, to be compared. */
  everything(): readonly unknown[] {
    const rows = statuses.map((status) => this.rows(status));
    const holds = this.#lanes.map((lane) => lane.holds());
    return [rows, holds, this.#owners.everything(), this.pausedAt, this.cleaning, this.#lastPosition];
  }

  #lane(lane: number): MemoryLane {
    const found = this.#lanes[lane];
    if (found === undefined) throw new RangeError(`there is no lane ${lane}; lanes are 0 to ${laneCount - 1}`);
    return found;
  }
}

function bytesOf({ message }: Row): number {
  return message.data.byteLength + 512;
}

/** The first rows, up to the one with which they reach so many bytes. */
function upTo<R extends Row>(maxBytes: number, rows: readonly R[]): R[] {
  let bytes = 0;
  const end = rows.findIndex((row) => {
    const isFull = bytes >= maxBytes;
    bytes += bytesOf(row);
    return isFull;
  });
  return end < 0 ? [...rows] : rows.slice(0, end);
}

function fresh(message: Message, position: number, now: number): StoredRow {
  return {
    lane: laneOf(message.key ?? message.id),
    position,
    message: copyOf(message),
    attempts: 0,
    crashes: 0,
    createdAt: now,
    updatedAt: now,
    failures: [],
  };
}
