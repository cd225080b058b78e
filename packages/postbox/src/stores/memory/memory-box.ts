import { laneCount, laneOf } from "../../internal/lane.js";
import type { Message } from "../../message/message.js";
import type { Box, Lane, LaneGap, LaneRead, LateRow, Membership, Row, Settlement, SettleOptions } from "../../store.js";
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
  }));
  /** Until when each member's lease lasts. */
  readonly #members = new Map<string, number>();
  readonly #parked: StoredRow[] = [];
  readonly #done: StoredRow[] = [];
  #lastPosition = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Gives a message its position, as an identity column does: before the commit, and for good even without one. */
  place(message: Message): StoredRow {
    const lane = laneOf(message.key ?? message.id);
    return { lane, position: ++this.#lastPosition, message: copyOf(message), attempts: 0, createdAt: this.#now() };
  }

  /** Makes placed rows visible. */
  insert(rows: readonly StoredRow[]): void {
    for (const row of rows) this.#lane(row.lane).add(row);
  }

  async renew(owner: string, leaseMs: number): Promise<Membership> {
    this.#members.set(owner, this.#now() + leaseMs);
    return {
      members: [...this.#members.values()].filter((expiresAt) => expiresAt > this.#now() + leaseMs / 2).length,
      lanes: this.#lanesOf(owner),
    };
  }

  async own(owner: string, most: number): Promise<readonly Lane[]> {
    const taken: Lane[] = [];
    for (const [lane, state] of this.#ownership.entries()) {
      if (taken.length >= most) break;
      if (state.owner === owner || this.#lives(state.owner)) continue;
      Object.assign(state, { owner, epoch: state.epoch + 1 });
      taken.push({ lane, epoch: state.epoch });
    }
    return taken;
  }

  async release(owner: string, lanes?: readonly Lane[]): Promise<void> {
    for (const { lane, epoch } of lanes ?? this.#lanesOf(owner)) {
      const state = this.#ownership[lane];
      if (state?.owner === owner && state.epoch === epoch) state.owner = undefined;
    }
    if (lanes === undefined) this.#members.delete(owner);
  }

  #lives(member: string | undefined): boolean {
    return member !== undefined && (this.#members.get(member) ?? 0) > this.#now();
  }

  #lanesOf(owner: string): readonly Lane[] {
    return this.#ownership.flatMap((state, lane) => (state.owner === owner ? [{ lane, epoch: state.epoch }] : []));
  }

  async read(lanes: readonly LaneRead[]): Promise<readonly Row[]> {
    const now = this.#now();
    return lanes.flatMap(({ lane, after = 0, limit }) => this.#lane(lane).read(after, limit, now));
  }

  async late(gaps: readonly LaneGap[]): Promise<readonly LateRow[]> {
    const now = this.#now();
    return gaps.flatMap((gap) => this.#lane(gap.lane).late(gap, now));
  }

  async settle(
    lanes: readonly Lane[],
    settlements: readonly Settlement[],
    { keep = false }: SettleOptions = {},
  ): Promise<ReadonlySet<number>> {
    const now = this.#now();
    const standing = new Set(
      lanes.filter(({ lane, epoch }) => this.#ownership[lane]?.epoch === epoch).map(({ lane }) => lane),
    );
    const fenced = settlements.filter(({ row }) => standing.has(row.lane));
    for (const settlement of fenced) {
      const taken = this.#lane(settlement.row.lane).settle(settlement, now);
      if (taken === undefined) continue;
      if (settlement.to === "parked") this.#parked.push(taken);
      else if (keep) this.#done.push(taken);
    }
    for (const { row } of fenced) this.#lane(row.lane).freeHold(row.message);
    return standing;
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
