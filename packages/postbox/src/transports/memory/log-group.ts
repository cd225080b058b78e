import type { LogPartition } from "./log-partition.js";

/** How far a group has read a partition. It outlives the group's members. */
export interface Progress {
  /** Everything below this offset is done; the next member starts here. */
  committed: number;
  /** Everything below this offset was delivered to a member once. */
  handedOver: number;
}

/** One run of a receiver, as its group sees it. */
export interface GroupMember {
  readonly topics: ReadonlySet<string>;
  assign(partition: LogPartition, progress: Progress): void;
  revoke(partition: LogPartition): void;
}

/**
 * The members that share the partitions of their topics. When a member joins or leaves, partitions are revoked and
 * assigned anew, as evenly as possible and with as few moves as possible.
 */
export class LogGroup {
  readonly #partitionsOf: (topic: string) => readonly LogPartition[];
  readonly #members: GroupMember[] = [];
  readonly #owners = new Map<LogPartition, GroupMember>();
  readonly #progress = new Map<LogPartition, Progress>();

  constructor(partitionsOf: (topic: string) => readonly LogPartition[]) {
    this.#partitionsOf = partitionsOf;
  }

  join(member: GroupMember): void {
    this.#members.push(member);
    this.#rebalance(member.topics);
  }

  /** What the member had not committed is delivered to others. Has no effect if it has left. */
  leave(member: GroupMember): void {
    const place = this.#members.indexOf(member);
    if (place === -1) return;
    this.#members.splice(place, 1);
    this.#rebalance(member.topics);
  }

  /** A group starts at the beginning of a partition, so that it misses nothing. */
  progressOf(partition: LogPartition): Progress {
    const progress = this.#progress.get(partition) ?? { committed: 0, handedOver: 0 };
    this.#progress.set(partition, progress);
    return progress;
  }

  #rebalance(topics: Iterable<string>): void {
    const moves: { readonly partition: LogPartition; readonly from?: GroupMember; readonly to?: GroupMember }[] = [];
    for (const topic of topics) {
      const partitions = this.#partitionsOf(topic);
      const members = this.#members.filter((member) => member.topics.has(topic));
      const next = shares(partitions, members, this.#owners);
      for (const partition of partitions) {
        const [from, to] = [this.#owners.get(partition), next.get(partition)];
        if (from !== to) moves.push({ partition, ...(from && { from }), ...(to && { to }) });
      }
    }
    for (const { partition, from } of moves) {
      this.#owners.delete(partition);
      from?.revoke(partition);
    }
    for (const { partition, to } of moves) {
      if (to === undefined) continue;
      this.#owners.set(partition, to);
      to.assign(partition, this.progressOf(partition));
    }
  }
}

/** Assigns partitions: each member gets an even share, beginning with those that it has. */
function shares(
  partitions: readonly LogPartition[],
  members: readonly GroupMember[],
  owners: ReadonlyMap<LogPartition, GroupMember>,
): Map<LogPartition, GroupMember> {
  const next = new Map<LogPartition, GroupMember>();
  const owned = (member: GroupMember) => partitions.filter((partition) => owners.get(partition) === member);
  // If the division leaves a remainder, the members with the most partitions get one more, so that fewer partitions
  // move.
  const byOwned = [...members].sort((a, b) => owned(b).length - owned(a).length);
  const share = (place: number) =>
    Math.floor(partitions.length / members.length) + (place < partitions.length % members.length ? 1 : 0);
  for (const [place, member] of byOwned.entries()) {
    for (const partition of owned(member).slice(0, share(place))) next.set(partition, member);
  }
  const free = partitions.filter((partition) => !next.has(partition));
  for (const [place, member] of byOwned.entries()) {
    for (let more = share(place) - Math.min(share(place), owned(member).length); more > 0; more--) {
      next.set(free.shift() as LogPartition, member);
    }
  }
  return next;
}
