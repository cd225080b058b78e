import type { BoxStats } from "../../admin.js";
import { laneCount } from "../../internal/lane.js";
import type { Lane, Member, Membership, Order, OwnOptions, TakenLane } from "../../store.js";
import type { BoxSight } from "../box-problems.js";

interface Ownership {
  epoch: number;
  owner?: string | undefined;
  clean: boolean;
}

interface Lease {
  readonly order: Order;
  readonly beat: number;
  readonly leaseMs: number;
  readonly expiresAt: number;
}

interface StoredOwners {
  /** Only lanes that have had an owner. */
  readonly lanes: readonly (readonly [lane: number, state: Ownership])[];
  readonly members: readonly (readonly [owner: string, lease: Lease])[];
}

/** How long a crashed relay is still shown. */
const deadKeptMs = 24 * 60 * 60 * 1000;

/** The members that share the lanes of a box, and the owner of each lane. */
export class BoxOwners {
  readonly #now: () => number;
  readonly #lanes: Ownership[] = Array.from({ length: laneCount }, () => ({ epoch: 0, clean: true }));
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
      if (expiresAt < now - deadKeptMs) this.#members.delete(other);
      else if (other !== owner) others.push({ owner: other, ...lease, expiresInMs: expiresAt - now });
    }
    return { others, lanes: this.#lanesOf(owner) };
  }

  own(owner: string, most: number, { dead = [], least = 0, except = [] }: OwnOptions = {}): readonly TakenLane[] {
    if (!this.#lives(owner)) return [];
    const isDead = (member: string) =>
      dead.some((one) => one.owner === member && one.beat === this.#members.get(member)?.beat);
    const isFree = (other: string | undefined) => other === undefined || !this.#lives(other) || isDead(other);
    const free = [...this.#lanes.entries()].filter(
      ([lane, state]) => !except.includes(lane) && state.owner !== owner && isFree(state.owner),
    );
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

  /** Takes a lane from its owner. */
  disown(lane: number): void {
    const state = this.#lanes[lane];
    if (state !== undefined) Object.assign(state, { owner: undefined, epoch: state.epoch + 1, clean: true });
  }

  /** The lanes whose epoch is current. */
  standing(lanes: readonly Lane[]): ReadonlySet<number> {
    return new Set(lanes.filter(({ lane, epoch }) => this.#lanes[lane]?.epoch === epoch).map(({ lane }) => lane));
  }

  sharing(): BoxStats["lanes"] {
    const owners = [...this.#members.keys()].sort().map((owner) => ({
      owner,
      lanes: this.#lanesOf(owner).length,
      lives: this.#lives(owner),
    }));
    return { unowned: this.unowned().size, owners };
  }

  /** The members whose lease has not expired. */
  living(): BoxSight["relays"] {
    return [...this.#members]
      .filter(([owner]) => this.#lives(owner))
      .map(([owner, { order, beat }]) => ({ owner, order, lanes: this.#lanesOf(owner).length, beat }));
  }

  /** The lanes without an owner whose lease has not expired. */
  unowned(): ReadonlySet<number> {
    const isUnowned = ({ owner }: Ownership) => owner === undefined || !this.#lives(owner);
    return new Set(this.#lanes.flatMap((state, lane) => (isUnowned(state) ? [lane] : [])));
  }

  #lives(member: string): boolean {
    return (this.#members.get(member)?.expiresAt ?? 0) > this.#now();
  }

  #lanesOf(owner: string): readonly Lane[] {
    return this.#lanes.flatMap((state, lane) => (state.owner === owner ? [{ lane, epoch: state.epoch }] : []));
  }

  toJSON(): unknown {
    const lanes = [...this.#lanes.entries()].filter(([, { epoch }]) => epoch > 0);
    return { lanes, members: [...this.#members] } satisfies StoredOwners;
  }

  restore(stored: unknown): void {
    const { lanes, members } = stored as StoredOwners;
    for (const [lane, state] of lanes) this.#lanes[lane] = state;
    for (const [owner, lease] of members) this.#members.set(owner, lease);
  }
}
