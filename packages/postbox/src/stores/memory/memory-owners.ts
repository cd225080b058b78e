import type { BoxStats } from "../../admin.js";
import { laneCount } from "../../internal/lane.js";
import type { Lane, Member, Membership, Order, OwnOptions, TakenLane } from "../../store.js";

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

/** Who shares the lanes of a box, and whose each lane is. */
export class MemoryOwners {
  readonly #now: () => number;
  readonly #lanes: Ownership[] = Array.from({ length: laneCount }, () => ({ epoch: 0, owner: undefined, clean: true }));
  readonly #members = new Map<string, Lease>();

  constructor(now: () => number) {
    this.#now = now;
  }

  renew(owner: string, leaseMs: number, order: Order): Omit<Membership, "paused"> {
    const now = this.#now();
    const beat = (this.#members.get(owner)?.beat ?? 0) + 1;
    this.#members.set(owner, { order, beat, leaseMs, expiresAt: now + leaseMs });
    const others: Member[] = [];
    for (const [other, { expiresAt, ...lease }] of this.#members) {
      if (other === owner) continue;
      others.push({ owner: other, ...lease, expiresInMs: expiresAt - now });
    }
    return { others, lanes: this.#lanesOf(owner) };
  }

  own(owner: string, most: number, { dead = [], least = 0, except = [] }: OwnOptions = {}): readonly TakenLane[] {
    const isDead = (member: string) =>
      dead.some((one) => one.owner === member && one.beat === this.#members.get(member)?.beat);
    const free = [...this.#lanes.entries()].filter(
      ([lane, state]) =>
        !except.includes(lane) &&
        state.owner !== owner &&
        (state.owner === undefined || !this.#lives(state.owner) || isDead(state.owner)),
    );
    if (!this.#lives(owner)) return [];
    const wanted = free.slice(0, most);
    if (wanted.length < least) return [];
    return wanted.map(([lane, state]) => {
      const { clean } = state;
      Object.assign(state, { owner, epoch: state.epoch + 1, clean: false });
      return { lane, epoch: state.epoch, clean };
    });
  }

  release(owner: string, lanes?: readonly Lane[]): void {
    for (const { lane, epoch } of lanes ?? this.#lanesOf(owner)) {
      const state = this.#lanes[lane];
      if (state?.owner === owner && state.epoch === epoch) Object.assign(state, { owner: undefined, clean: true });
    }
    if (lanes === undefined) this.#members.delete(owner);
  }

  /** Takes these from whoever has them. */
  disown(lanes: readonly number[]): void {
    for (const lane of lanes) {
      const state = this.#lanes[lane];
      if (state !== undefined) Object.assign(state, { owner: undefined, epoch: state.epoch + 1, clean: true });
    }
  }

  /** The lanes whose epoch still stands. */
  standing(lanes: readonly Lane[]): ReadonlySet<number> {
    return new Set(lanes.filter(({ lane, epoch }) => this.#lanes[lane]?.epoch === epoch).map(({ lane }) => lane));
  }

  sharing(): BoxStats["lanes"] {
    const owners = [...this.#members.keys()].sort().map((owner) => ({
      owner,
      lanes: this.#lanesOf(owner).length,
      lives: this.#lives(owner),
    }));
    return { unowned: this.unownedLanes().size, owners };
  }

  living(): { readonly owner: string; readonly order: Order; readonly lanes: number; readonly beat: number }[] {
    return [...this.#members]
      .filter(([owner]) => this.#lives(owner))
      .map(([owner, { order, beat }]) => ({ owner, order, lanes: this.#lanesOf(owner).length, beat }));
  }

  unownedLanes(): ReadonlySet<number> {
    const unowned = ({ owner }: Ownership) => owner === undefined || !this.#lives(owner);
    return new Set(this.#lanes.flatMap((state, lane) => (unowned(state) ? [lane] : [])));
  }

  everything(): readonly unknown[] {
    return [this.#lanes, [...this.#members]];
  }

  #lives(member: string): boolean {
    return (this.#members.get(member)?.expiresAt ?? 0) > this.#now();
  }

  #lanesOf(owner: string): readonly Lane[] {
    return this.#lanes.flatMap((state, lane) => (state.owner === owner ? [{ lane, epoch: state.epoch }] : []));
  }
}
