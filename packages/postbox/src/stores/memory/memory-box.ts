import { laneCount, laneOf } from "../../internal/lane.js";
import type { Message } from "../../message/message.js";
import type {
  Box,
  Lane,
  LaneGap,
  LaneRead,
  LateRow,
  Member,
  Membership,
  Order,
  OwnOptions,
  Promoted,
  ReadRows,
  Row,
  Settled,
  Settlement,
  SettleOptions,
  TakenLane,
} from "../../store.js";
import { byPosition, copyOf, MemoryLane, type StoredRow } from "./memory-lane.js";

/** What a box holds, for tests and operators. Only what is committed; each list in order of position. */
export interface BoxContents {
  readonly pending: readonly Message[];
  readonly wait: readonly Message[];
  /** The held keys, sorted; for a message without a key its id. */
  readonly holds: readonly string[];
  readonly parked: readonly { readonly message: Message; readonly attempts: number; readonly error: string }[];
  /** What was sent, where the relay keeps it. */
  readonly done: readonly Message[];
}

interface Ownership {
  epoch: number;
  owner: string | undefined;
  clean: boolean;
}

interface Lease {
  readonly order: Order;
  readonly beat: number;
  readonly leaseMs: number;
  readonly expiresAt: number;
}

/** Rows that have their positions and are not visible yet. The number is that of their append. */
export interface Placed {
  readonly number: number;
  readonly rows: readonly StoredRow[];
}

/**
 * A box in memory. Each verb does its work in one synchronous step, which is what a database's statement is to others:
 * no take-over can come between the check of an epoch and the writes that rest on it.
 */
export class MemoryBox implements Box {
  readonly #now: () => number;
  readonly #lanes = Array.from({ length: laneCount }, () => new MemoryLane());
  readonly #ownership: Ownership[] = Array.from({ length: laneCount }, () => ({
    epoch: 0,
    owner: undefined,
    clean: true,
  }));
  readonly #members = new Map<string, Lease>();
  readonly #parked: StoredRow[] = [];
  readonly #done: StoredRow[] = [];
  /** The appends whose transactions have not ended. */
  readonly #open = new Set<number>();
  #lastAppend = 0;
  #lastPosition = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Gives messages their positions, as an identity column does: before the commit, and for good even without one. */
  place(messages: readonly Message[]): Placed {
    const number = ++this.#lastAppend;
    this.#open.add(number);
    const rows = messages.map((message) => {
      const lane = laneOf(message.key ?? message.id);
      const position = ++this.#lastPosition;
      return { lane, position, message: copyOf(message), attempts: 0, crashes: 0, createdAt: this.#now() };
    });
    return { number, rows };
  }

  /** Makes placed rows visible. */
  insert({ number, rows }: Placed): void {
    this.#open.delete(number);
    for (const row of rows) this.#lane(row.lane).add(row);
  }

  /** Never makes them visible. */
  discard({ number }: Placed): void {
    this.#open.delete(number);
  }

  async renew(owner: string, leaseMs: number, order: Order): Promise<Membership> {
    const now = this.#now();
    const beat = (this.#members.get(owner)?.beat ?? 0) + 1;
    this.#members.set(owner, { order, beat, leaseMs, expiresAt: now + leaseMs });
    const others: Member[] = [];
    for (const [other, { expiresAt, ...lease }] of this.#members) {
      if (other === owner) continue;
      others.push({ owner: other, ...lease, lives: expiresAt > now, shares: expiresAt > now + lease.leaseMs / 2 });
    }
    return { paused: false, others, lanes: this.#lanesOf(owner) };
  }

  async own(owner: string, most: number, { dead = [], all = false }: OwnOptions = {}): Promise<readonly TakenLane[]> {
    const isDead = (member: string) =>
      dead.some((one) => one.owner === member && one.beat === this.#members.get(member)?.beat);
    const free = [...this.#ownership.entries()].filter(
      ([, state]) =>
        state.owner !== owner && (state.owner === undefined || !this.#lives(state.owner) || isDead(state.owner)),
    );
    if (!this.#lives(owner)) return [];
    if (all && free.length + this.#lanesOf(owner).length < laneCount) return [];
    return free.slice(0, most).map(([lane, state]) => {
      const { clean } = state;
      Object.assign(state, { owner, epoch: state.epoch + 1, clean: false });
      return { lane, epoch: state.epoch, clean };
    });
  }

  async release(owner: string, lanes?: readonly Lane[]): Promise<void> {
    for (const { lane, epoch } of lanes ?? this.#lanesOf(owner)) {
      const state = this.#ownership[lane];
      if (state?.owner === owner && state.epoch === epoch) Object.assign(state, { owner: undefined, clean: true });
    }
    if (lanes === undefined) this.#members.delete(owner);
  }

  #lives(member: string): boolean {
    return (this.#members.get(member)?.expiresAt ?? 0) > this.#now();
  }

  #lanesOf(owner: string): readonly Lane[] {
    return this.#ownership.flatMap((state, lane) => (state.owner === owner ? [{ lane, epoch: state.epoch }] : []));
  }

  async read(lanes: readonly LaneRead[]): Promise<ReadRows> {
    const rows = lanes.flatMap(({ lane, after = 0, limit }) => this.#lane(lane).read(after, limit));
    return { rows, open: new Set(this.#open) };
  }

  async due(lanes: readonly Omit<LaneRead, "after">[]): Promise<readonly Row[]> {
    const now = this.#now();
    return lanes.flatMap(({ lane, limit }) => this.#lane(lane).due(limit, now));
  }

  async late(gaps: readonly LaneGap[], limit: number): Promise<ReadRows<LateRow>> {
    const now = this.#now();
    const rows = gaps.flatMap((gap) => this.#lane(gap.lane).late(gap, now));
    return { rows: rows.sort(byPosition).slice(0, limit), open: new Set(this.#open) };
  }

  async settle(
    lanes: readonly Lane[],
    settlements: readonly Settlement[],
    { keep = false, alone = false }: SettleOptions = {},
  ): Promise<Settled> {
    const now = this.#now();
    const standing = this.#standing(lanes);
    const fenced = settlements.filter(({ row }) => standing.has(row.lane));
    for (const settlement of fenced) {
      const taken = this.#lane(settlement.row.lane).settle(settlement, now, alone);
      if (taken === undefined) continue;
      if (settlement.to === "parked") this.#parked.push(taken);
      else if (keep) this.#done.push(taken);
    }
    for (const { row } of fenced) this.#lane(row.lane).freeHolds(row.message);
    return { standing };
  }

  async promote(): Promise<Promoted> {
    return { count: 0 };
  }

  async suspect(lanes: readonly Lane[], rows: readonly Row[]): Promise<ReadonlySet<number>> {
    const standing = this.#standing(lanes);
    for (const row of rows) if (standing.has(row.lane)) this.#lane(row.lane).suspect(row);
    return standing;
  }

  /** The lanes whose epoch still stands. */
  #standing(lanes: readonly Lane[]): ReadonlySet<number> {
    return new Set(lanes.filter(({ lane, epoch }) => this.#ownership[lane]?.epoch === epoch).map(({ lane }) => lane));
  }

  contents(): BoxContents {
    const lanes = this.#lanes.map((lane) => lane.contents());
    const messages = (rows: StoredRow[]) => rows.sort(byPosition).map((row) => copyOf(row.message));
    return {
      pending: messages(lanes.flatMap((lane) => lane.pending)),
      wait: messages(lanes.flatMap((lane) => lane.wait)),
      holds: lanes.flatMap((lane) => lane.holds).sort(),
      parked: [...this.#parked].sort(byPosition).map(({ message, attempts, error = "" }) => ({
        message: copyOf(message),
        attempts,
        error,
      })),
      done: messages([...this.#done]),
    };
  }

  #lane(lane: number): MemoryLane {
    const found = this.#lanes[lane];
    if (found === undefined) throw new RangeError(`there is no lane ${lane}; lanes are 0 to ${laneCount - 1}`);
    return found;
  }
}
