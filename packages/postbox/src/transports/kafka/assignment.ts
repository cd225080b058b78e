import type { TopicPartition } from "./client.js";

/*
 * How the partitions of a group are divided: the cooperative protocol of Kafka's consumers, in which a member keeps the
 * partitions that stay with it through a rebalance. The formats are those of Java's cooperative assignor, so that its
 * consumers can be in the same group.
 */

export const protocolName = "cooperative-sticky";

/** A member of a group, as it describes itself to the leader. */
export interface GroupMember {
  readonly memberId: string;
  readonly topics: readonly string[];
  /** What it holds, of this generation. */
  readonly owned: readonly TopicPartition[];
  readonly generation: number;
}

/** What a member tells the leader when it joins. */
export function encodeMember({ topics, owned, generation }: Omit<GroupMember, "memberId">): Buffer {
  const userData = Buffer.alloc(4);
  userData.writeInt32BE(generation);
  return Buffer.concat([int16(1), int32(topics.length), ...topics.map(text), int32(4), userData, partitions(owned)]);
}

export function decodeMember(memberId: string, bytes: Buffer): GroupMember {
  const reader = new Reader(bytes);
  const version = reader.int16();
  const topics = Array.from({ length: reader.int32() }, () => reader.text());
  const userData = reader.bytes();
  const owned = version >= 1 ? reader.partitions() : [];
  const generation =
    version >= 2 ? reader.int32() : userData.length >= 4 ? userData.readInt32BE(userData.length - 4) : -1;
  return { memberId, topics, owned, generation };
}

/** What the leader tells a member. */
export function encodeAssignment(assigned: readonly TopicPartition[]): Buffer {
  return Buffer.concat([int16(1), partitions(assigned), int32(0)]);
}

/** Empty for a member that gets nothing. */
export function decodeAssignment(bytes: Buffer): TopicPartition[] {
  if (bytes.length < 2) return [];
  const reader = new Reader(bytes);
  reader.int16();
  return reader.partitions();
}

/**
 * Divides the partitions evenly, with as few moves as possible. A partition that has to move is given to nobody until
 * its owner has let go of it: that member then joins again, and the next round gives it away.
 */
export function assign(
  members: readonly GroupMember[],
  counts: ReadonlyMap<string, number>,
): ReadonlyMap<string, readonly TopicPartition[]> {
  const owners = ownersOf(members, counts);
  const wanted = balanced(members, counts, owners);
  const assigned = new Map<string, TopicPartition[]>(members.map(({ memberId }) => [memberId, []]));
  for (const [name, memberId] of wanted) {
    const owner = owners.get(name);
    if (owner === undefined || owner === memberId) assigned.get(memberId)?.push(partitionOfName(name));
  }
  return assigned;
}

const nameOf = ({ topic, partition }: TopicPartition) => `${topic}/${partition}`;

function partitionOfName(name: string): TopicPartition {
  const at = name.lastIndexOf("/");
  return { topic: name.slice(0, at), partition: Number(name.slice(at + 1)) };
}

/** Who holds each partition. If two claim one, the later generation counts; of the same one, neither. */
function ownersOf(members: readonly GroupMember[], counts: ReadonlyMap<string, number>): Map<string, string> {
  const claims = new Map<string, { readonly memberId: string | undefined; readonly generation: number }>();
  for (const { memberId, topics, owned, generation } of members) {
    for (const each of owned) {
      if (!topics.includes(each.topic) || each.partition >= (counts.get(each.topic) ?? 0)) continue;
      const claim = claims.get(nameOf(each));
      if (claim === undefined || claim.generation < generation) claims.set(nameOf(each), { memberId, generation });
      else if (claim.generation === generation) claims.set(nameOf(each), { memberId: undefined, generation });
    }
  }
  return new Map([...claims].flatMap(([name, { memberId }]) => (memberId === undefined ? [] : [[name, memberId]])));
}

/** The member of each partition when all moves are done. */
function balanced(
  members: readonly GroupMember[],
  counts: ReadonlyMap<string, number>,
  owners: ReadonlyMap<string, string>,
): Map<string, string> {
  const held = new Map<string, Set<string>>(members.map(({ memberId }) => [memberId, new Set()]));
  const sizeOf = (memberId: string) => held.get(memberId)?.size ?? 0;
  // In a fixed order, so that every leader decides alike.
  const sorted = [...members].sort((a, b) => (a.memberId < b.memberId ? -1 : 1));
  const takersOf = (topic: string) => sorted.filter(({ topics }) => topics.includes(topic));
  const result = new Map<string, string>();
  const give = (name: string, memberId: string) => {
    const before = result.get(name);
    if (before !== undefined) held.get(before)?.delete(name);
    held.get(memberId)?.add(name);
    result.set(name, memberId);
  };
  const names = [...counts]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([topic, count]) => Array.from({ length: count }, (_, partition) => nameOf({ topic, partition })));
  for (const name of names) {
    const owner = owners.get(name);
    if (owner !== undefined) give(name, owner);
  }
  const least = (takers: readonly GroupMember[]) =>
    takers.reduce<GroupMember | undefined>(
      (best, each) => (best === undefined || sizeOf(each.memberId) < sizeOf(best.memberId) ? each : best),
      undefined,
    );
  for (const name of names) {
    const taker = result.has(name) ? undefined : least(takersOf(partitionOfName(name).topic));
    if (taker !== undefined) give(name, taker.memberId);
  }
  // Each move brings two members closer together, so this ends.
  for (let moved = true; moved; ) {
    moved = false;
    for (const name of names) {
      const from = result.get(name);
      const to = least(takersOf(partitionOfName(name).topic));
      if (from === undefined || to === undefined || sizeOf(from) - sizeOf(to.memberId) < 2) continue;
      give(name, to.memberId);
      moved = true;
    }
  }
  return result;
}

function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([int16(bytes.length), bytes]);
}

function partitions(all: readonly TopicPartition[]): Buffer {
  const topics = [...new Set(all.map(({ topic }) => topic))];
  const encoded = topics.map((topic) => {
    const of = all.filter((each) => each.topic === topic).map(({ partition }) => int32(partition));
    return Buffer.concat([text(topic), int32(of.length), ...of]);
  });
  return Buffer.concat([int32(topics.length), ...encoded]);
}

class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  int16(): number {
    this.#at += 2;
    return this.#bytes.readInt16BE(this.#at - 2);
  }

  int32(): number {
    this.#at += 4;
    return this.#bytes.readInt32BE(this.#at - 4);
  }

  text(): string {
    const length = this.int16();
    this.#at += length;
    return this.#bytes.toString("utf8", this.#at - length, this.#at);
  }

  /** Empty if they are null. */
  bytes(): Buffer {
    const length = Math.max(0, this.int32());
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  partitions(): TopicPartition[] {
    return Array.from({ length: this.int32() }, () => {
      const topic = this.text();
      return Array.from({ length: this.int32() }, () => ({ topic, partition: this.int32() }));
    }).flat();
  }
}
