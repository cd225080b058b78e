import type { Status } from "../../admin.js";
import { laneCount, laneOf } from "../../internal/lane.js";
import type { Message } from "../../message/message.js";
import {
  type Aside,
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
import type { AuditedChange } from "./audit-rows.js";
import { BoxLane } from "./box-lane.js";
import { BoxOwners } from "./box-owners.js";
import { OrderedRows } from "./ordered-rows.js";
import { RememberedIds } from "./remembered-ids.js";
import { dueTimeOf, type ScheduledRow, ScheduledRows, type ScheduleKey, unscheduled } from "./scheduled-rows.js";
import {
  byPosition,
  bytesOf,
  copyOf,
  fromJson,
  newRow,
  type StoredRow,
  toJson,
  upToBytes,
  type WithData,
} from "./stored-row.js";

/** The committed contents of a box, for tests and operators. Each list is in order of position. */
export interface BoxContents {
  readonly pending: readonly Message[];
  readonly wait: readonly Message[];
  /** The held keys, sorted; for a message without a key its id. */
  readonly holds: readonly string[];
  /** Messages that are not due yet, with positions of their own. */
  readonly scheduled: readonly Message[];
  readonly parked: readonly { readonly message: Message; readonly attempts: number; readonly error: string }[];
  /** Sent messages, if the relay keeps them. */
  readonly done: readonly Message[];
}

/** Messages that have positions but are not visible yet. `number` identifies their append. */
export interface Placed {
  readonly number: number;
  readonly rows: readonly StoredRow[];
  readonly scheduled: readonly ScheduledRow[];
}

/** A row as an operator sees it. A waiting row is due when its hold is. */
export type StatusRow = StoredRow & { readonly status: Status };

export interface BoxRowsOptions {
  now(): number;
  /** Whether positions are drawn before the commit. */
  readonly lateCommits: boolean;
  /** Whether it is a consumer's inbox, where `done` is what the consumer has handled. */
  readonly isInbox: boolean;
  isScheduleLocked(message: Message): boolean;
  audit(change: AuditedChange): void;
}

/** The JSON form of a box. */
export interface StoredBox {
  readonly drawn: [position: number, scheduled: number, revision: number];
  readonly pausedAt: number | undefined;
  readonly owners: unknown;
  /** Null instead of Infinity, which JSON does not have. */
  readonly holds: readonly (readonly [lane: number, name: string, dueAt: number | null])[];
  readonly rows: readonly (readonly [status: Status, rows: readonly WithData<StoredRow>[]])[];
  readonly remembered: unknown;
}

/**
 * A box in memory. Each verb is one synchronous step, like a statement of a database: no take-over can happen between
 * the check of an epoch and the writes that depend on it.
 */
export class BoxRows {
  readonly owners: BoxOwners;
  /** For an inbox: what its consumer has accepted. */
  readonly remembered = new RememberedIds();
  readonly #options: BoxRowsOptions;
  /** Each lane is created on its first use. */
  readonly #lanes: BoxLane[] = [];
  readonly #scheduled = new ScheduledRows();
  readonly #parked = new OrderedRows<StoredRow>();
  readonly #done = new OrderedRows<StoredRow>();
  /** The appends whose transactions have not ended. */
  readonly #open = new Set<number>();
  #lastAppend = 0;
  #drawn = 0;
  #drawnScheduled = 0;
  #revision = 0;
  /** While the box is paused, no relay gets lanes. */
  pausedAt: number | undefined;

  constructor(options: BoxRowsOptions) {
    this.#options = options;
    this.owners = new BoxOwners(() => this.now);
  }

  get paused(): boolean {
    return this.pausedAt !== undefined;
  }

  /** The store's clock. */
  get now(): number {
    return this.#options.now();
  }

  /** Grows with each row that changes its status. */
  get revision(): number {
    return this.#revision;
  }

  /**
   * Assigns positions to messages as an identity column does: before the commit, and used up even if it never commits.
   */
  place(messages: readonly Message[]): Placed {
    const number = ++this.#lastAppend;
    this.#open.add(number);
    const now = this.now;
    const placed = { number, rows: [] as StoredRow[], scheduled: [] as ScheduledRow[] };
    for (const message of messages) {
      const dueAt = dueTimeOf(message);
      const isDue = dueAt === undefined || (dueAt <= now && message.scheduleKey === undefined);
      if (isDue) placed.rows.push(newRow(unscheduled(message), this.#options.lateCommits ? ++this.#drawn : 0, now));
      else placed.scheduled.push({ ...newRow(message, ++this.#drawnScheduled, now), dueAt });
    }
    return placed;
  }

  /** Makes placed messages visible. Without late commits, this assigns their positions. */
  insert({ number, rows, scheduled }: Placed): void {
    this.#open.delete(number);
    for (const row of rows) this.#append(this.#options.lateCommits ? row : { ...row, position: ++this.#drawn });
    for (const row of scheduled) this.#scheduled.add({ ...row, revision: ++this.#revision });
  }

  #append(row: StoredRow): void {
    this.#lane(row.lane).add({ ...row, revision: ++this.#revision });
  }

  /** Discards placed messages, which never become visible. */
  discard({ number }: Placed): void {
    this.#open.delete(number);
  }

  append(messages: readonly Message[]): void {
    this.insert(this.place(messages));
  }

  isScheduled(key: ScheduleKey): boolean {
    return this.#scheduled.has(key);
  }

  cancel(key: ScheduleKey): boolean {
    return this.#scheduled.cancel(key);
  }

  renew(owner: string, leaseMs: number, order: Order): Membership {
    return { paused: this.paused, ...this.owners.renew(owner, leaseMs, order) };
  }

  own(owner: string, most: number, options?: OwnOptions): readonly TakenLane[] {
    return this.paused ? [] : this.owners.own(owner, most, options);
  }

  read(lanes: readonly LaneRead[], { maxBytes = defaultReadBytes }: ReadOptions = {}): LaneRows {
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
    return { rows, ...this.#writers(), more, drawn: this.#drawn };
  }

  due(
    lanes: readonly Omit<LaneRead, "after">[],
    { maxBytes = defaultReadBytes, except = [] }: DueOptions = {},
  ): readonly Row[] {
    const { now } = this;
    const known = new Set(except);
    const due = lanes.flatMap(({ lane, limit }) => this.#lane(lane).due(limit, now, known));
    return upToBytes(due, maxBytes);
  }

  late(gaps: readonly LaneGap[], limit: number, { maxBytes = defaultReadBytes }: ReadOptions = {}): LateRows {
    const all = gaps.flatMap((gap) => this.#lane(gap.lane).late(gap, this.now)).sort(byPosition);
    const rows = upToBytes(all.slice(0, limit), maxBytes);
    return { rows, ...this.#writers(), more: rows.length < all.length };
  }

  #writers(): Pick<LaneRows, "writers"> {
    if (!this.#options.lateCommits) return {};
    const numbers = [...this.#open].sort((one, other) => one - other);
    return { writers: new WriterRanges(numbers.map((from) => ({ from, to: from + 1 }))) };
  }

  settle(lanes: readonly Lane[], settlements: readonly Settlement[], options?: SettleOptions): Settled {
    const standing = this.owners.standing(lanes);
    const fenced = settlements.filter(({ row }) => standing.has(row.lane));
    this.#settle(fenced, options);
    return { standing };
  }

  #settle(settlements: readonly Settlement[], options: SettleOptions = {}): void {
    const { now } = this;
    const loaded = settlements.map(({ row }) => this.#lane(row.lane).loaded(row));
    const rows = loaded.flatMap(({ row }) => row ?? []);
    const plan = settlePlan({ rows, holds: loaded.flatMap(({ holds }) => holds), now }, settlements, options);
    for (const hold of plan.held) this.#lane(hold.lane).hold(hold);
    for (const { before, to, after: settled } of plan.rows) {
      const after = { ...settled, updatedAt: now, revision: ++this.#revision };
      this.#lane(before.lane).write({ before, to, after });
      if (to === "parked") this.#parked.set(after.position, after);
      else if (to === "sent" && options.keep) this.#done.set(after.position, after);
    }
    for (const { lane, name } of plan.freed) this.#lane(lane).free(name);
    for (const drop of plan.drops) this.#options.audit({ action: "drop", by: "relay", ...drop });
  }

  /** Sets aside a message that was never in the box. */
  setAside(message: Message, aside: Aside): void {
    const row = newRow(message, ++this.#drawn, this.now);
    const lane = this.#lane(row.lane);
    lane.add(row);
    const read = { ...row, waiting: false, held: false };
    this.#settle([asideSettlement(read, aside, lane.loaded(read).holds)]);
  }

  /** Whether this row is still here as it was read, in a lane whose epoch is current. */
  has(row: Row, epoch: number): boolean {
    return this.owners.standing([{ lane: row.lane, epoch }]).size > 0 && this.#lane(row.lane).has(row);
  }

  /** Removes a row that was handled. */
  finish(row: Row): void {
    this.#settle([{ row, to: "sent" }]);
  }

  promote(limit: number): Promoted {
    const { now } = this;
    const due = this.#scheduled.takeDue(limit, now, this.#options.isScheduleLocked);
    for (const row of due) this.appendAgain(row);
    // If nothing could be appended, the due messages are locked: the next poll tries again, not an immediate call.
    const next = this.#scheduled.nextDueAt(due.length > 0 ? Number.NEGATIVE_INFINITY : now);
    return { count: due.length, ...(next !== undefined && { nextInMs: Math.max(0, next - now) }) };
  }

  suspect(lanes: readonly Lane[], rows: readonly Row[]): ReadonlySet<number> {
    const standing = this.owners.standing(lanes);
    for (const row of rows) if (standing.has(row.lane)) this.#lane(row.lane).suspect(row);
    return standing;
  }

  /** In order of position. */
  rows(status: Status): StatusRow[] {
    const rows = status === "done" && this.#options.isInbox ? this.remembered.handledRows() : this.#stored(status);
    return rows.map((row) => ({ ...row, status })).sort(byPosition);
  }

  #stored(status: Status): StoredRow[] {
    switch (status) {
      case "pending":
        return this.#lanes.flatMap((lane) => lane.pending());
      case "waiting":
        return this.#lanes.flatMap((lane) => lane.waiting());
      case "scheduled":
        return this.#scheduled.all();
      case "parked":
        return this.#parked.first(Number.POSITIVE_INFINITY);
      case "done":
        return this.#done.first(Number.POSITIVE_INFINITY);
    }
  }

  remove(row: StatusRow): void {
    const { status, position } = row;
    if (status === "pending" || status === "waiting") this.#lane(row.lane).remove(row, this.now);
    else if (status === "scheduled") this.#scheduled.delete(position);
    else if (status === "done") this.#done.delete(position);
    else this.#removeParked(row);
  }

  #removeParked({ position, lane, message: { key } }: StoredRow): void {
    this.#parked.delete(position);
    if (key !== undefined && !this.#isHeldByParked(key)) this.#lane(lane).letGo(key, this.now, true);
  }

  #isHeldByParked(key: string): boolean {
    return this.#stored("parked").some(({ message, holds }) => holds === true && message.key === key);
  }

  /** Appends a row again. It never returns to its old position, because a relay may have read beyond it. */
  appendAgain({ message, failures, error }: Pick<StoredRow, "message" | "failures" | "error">): void {
    const row = newRow(unscheduled(message), ++this.#drawn, this.now);
    this.#append({ ...row, failures, ...(error !== undefined && { error }) });
  }

  /** Retries a row: appends a parked one again, makes a waiting one due, and lets another owner take a pending one. */
  retry(row: StatusRow): void {
    if (row.status === "parked") this.#retryParked(row);
    else if (row.status === "waiting") this.#lane(row.lane).retryNow(row, this.now);
    else this.owners.disown(row.lane);
  }

  /** A row that holds its key returns to its place. Appended again, it would follow the rows that wait for it. */
  #retryParked({ status: _, holds: __, ...row }: StatusRow): void {
    const { now } = this;
    const { key } = row.message;
    this.#parked.delete(row.position);
    const turn = (row.turn ?? 0) + 1;
    const reset = { ...row, attempts: 0, crashes: 0, updatedAt: now, revision: ++this.#revision, turn };
    const letsGo = key === undefined || !this.#isHeldByParked(key);
    if (!this.#lane(row.lane).putBack(reset, letsGo, now)) this.appendAgain(row);
  }

  /** Makes a held key due now. Returns false if it is not held. */
  letGo(key: string): boolean {
    return this.#lane(laneOf(key)).letGo(key, this.now);
  }

  /** The held keys and when they are due: `Infinity` if an operator has to release one. */
  heldKeys(): { readonly name: string; readonly dueAt: number }[] {
    return this.#lanes.flatMap((lane) => lane.holds().filter(({ byKey }) => byKey));
  }

  contents(): BoxContents {
    const messages = (status: Status) => this.rows(status).map((row) => copyOf(row.message));
    const holds = this.#lanes.flatMap((lane) => lane.holds());
    return {
      pending: messages("pending"),
      wait: messages("waiting"),
      holds: holds.map(({ name, byKey }) => (byKey ? name : name.slice(1))).sort(),
      scheduled: messages("scheduled"),
      parked: this.rows("parked").map(({ message, attempts, error = "" }) => ({
        message: copyOf(message),
        attempts,
        error,
      })),
      done: messages("done"),
    };
  }

  toJSON(): StoredBox {
    return {
      drawn: [this.#drawn, this.#drawnScheduled, this.#revision],
      pausedAt: this.pausedAt,
      owners: this.owners.toJSON(),
      holds: this.#lanes.flatMap((lane, number) =>
        lane.holds().map(({ name, dueAt }) => [number, name, Number.isFinite(dueAt) ? dueAt : null] as const),
      ),
      rows: statuses.map((status) => [status, this.#stored(status).map(storedJson)] as const),
      remembered: this.remembered.toJSON(),
    };
  }

  restore({ drawn, pausedAt, owners, holds, rows, remembered }: StoredBox): void {
    [this.#drawn, this.#drawnScheduled, this.#revision] = drawn;
    this.pausedAt = pausedAt;
    this.owners.restore(owners);
    for (const [lane, name, dueAt] of holds) this.#lane(lane).hold({ name, dueAt: dueAt ?? Number.POSITIVE_INFINITY });
    for (const [status, each] of rows) for (const row of each) this.#restoreRow(status, fromJson(row));
    this.remembered.restore(remembered);
  }

  #restoreRow(status: Status, row: StoredRow): void {
    if (status === "scheduled") this.#scheduled.add(row as ScheduledRow);
    else if (status === "parked") this.#parked.set(row.position, row);
    else if (status === "done") this.#done.set(row.position, row);
    else this.#lane(row.lane).add(row);
  }

  #lane(lane: number): BoxLane {
    const isLane = Number.isInteger(lane) && lane >= 0 && lane < laneCount;
    if (!isLane) throw new RangeError(`there is no lane ${lane}; lanes are 0 to ${laneCount - 1}`);
    this.#lanes[lane] ??= new BoxLane();
    return this.#lanes[lane];
  }
}

/** A waiting row is due when its hold is, so its own time is not stored. */
function storedJson({ dueAt, ...row }: StoredRow) {
  return toJson<StoredRow>(row.hold === undefined && dueAt !== undefined ? { ...row, dueAt } : row);
}
