import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  assign,
  decodeAssignment,
  decodeMember,
  encodeAssignment,
  encodeMember,
  type GroupMember,
} from "./assignment.js";
import type { TopicPartition } from "./client.js";

const nameOf = ({ topic, partition }: TopicPartition) => `${topic}/${partition}`;

/** Plays rebalances until nothing moves, as members do that let go of what they lose and join again. */
function settled(members: readonly GroupMember[], counts: ReadonlyMap<string, number>) {
  let current = members;
  for (let round = 0; round < 3; round++) {
    const assigned = assign(current, counts);
    const before = new Map(current.map(({ memberId, owned }) => [memberId, owned.map(nameOf)]));
    // Nobody gets what another one still holds.
    for (const [memberId, partitions] of assigned) {
      for (const name of partitions.map(nameOf)) {
        const holders = [...before].filter(([, owned]) => owned.includes(name)).map(([id]) => id);
        if (holders.length === 1) expect(holders).toEqual([memberId]);
      }
    }
    current = current.map((member) => ({
      ...member,
      owned: assigned.get(member.memberId) ?? [],
      generation: member.generation + 1,
    }));
  }
  return current;
}

describe("the division of a group's partitions", () => {
  const arbitraryMembers = fc
    .record({ members: fc.integer({ min: 1, max: 6 }), partitions: fc.integer({ min: 1, max: 13 }), gone: fc.nat(6) })
    .map(({ members, partitions, gone }) => {
      const names = Array.from({ length: members }, (_, at) => `m${at}`);
      const counts = new Map([
        ["a", partitions],
        ["b", 3],
      ]);
      const owned = (memberId: string) =>
        [...counts].flatMap(([topic, count]) =>
          Array.from({ length: count }, (_, partition) => ({ topic, partition })).filter(
            ({ partition }) => `m${(partition * 7 + gone) % (members + 2)}` === memberId,
          ),
        );
      return {
        counts,
        members: names.map((memberId) => ({ memberId, topics: ["a", "b"], owned: owned(memberId), generation: 1 })),
      };
    });

  it("gives each partition to one member, evenly, after at most three rounds", () => {
    fc.assert(
      fc.property(arbitraryMembers, ({ members, counts }) => {
        const after = settled(members, counts);
        const given = after.flatMap(({ owned }) => owned.map(nameOf)).sort();
        const all = [...counts].flatMap(([topic, count]) => Array.from({ length: count }, (_, at) => `${topic}/${at}`));
        expect(given).toEqual(all.sort());
        const sizes = after.map(({ owned }) => owned.length);
        expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
      }),
    );
  });

  it("moves nothing if it is even", () => {
    const [before] = [
      settled(
        ["m1", "m2", "m3"].map((memberId) => ({ memberId, topics: ["a"], owned: [], generation: 0 })),
        new Map([["a", 12]]),
      ),
    ];
    const after = settled(before, new Map([["a", 12]]));
    expect(after.map(({ owned }) => owned.map(nameOf).sort())).toEqual(
      before.map(({ owned }) => owned.map(nameOf).sort()),
    );
  });

  it("gives a partition only to a member that reads its topic", () => {
    const members: GroupMember[] = [
      { memberId: "m1", topics: ["a"], owned: [], generation: 0 },
      { memberId: "m2", topics: ["b"], owned: [], generation: 0 },
    ];
    const assigned = assign(
      members,
      new Map([
        ["a", 2],
        ["b", 1],
      ]),
    );
    expect(assigned.get("m1")?.map(nameOf)).toEqual(["a/0", "a/1"]);
    expect(assigned.get("m2")?.map(nameOf)).toEqual(["b/0"]);
  });

  it("believes the later of two that claim a partition, and neither of the same generation", () => {
    const claim = (memberId: string, generation: number): GroupMember => ({
      memberId,
      topics: ["a"],
      owned: [{ topic: "a", partition: 0 }],
      generation,
    });
    const counts = new Map([["a", 1]]);
    expect(assign([claim("m1", 4), claim("m2", 5)], counts).get("m2")).toHaveLength(1);
    expect([...assign([claim("m1", 5), claim("m2", 5)], counts).values()].flat()).toHaveLength(1);
  });

  it("is written and read alike", () => {
    const owned = [
      { topic: "a", partition: 3 },
      { topic: "größe", partition: 0 },
      { topic: "a", partition: 1 },
    ];
    const member = decodeMember("m1", encodeMember({ topics: ["a", "größe"], owned, generation: 7 }));
    expect(member).toMatchObject({ memberId: "m1", topics: ["a", "größe"], generation: 7 });
    expect(member.owned.map(nameOf).sort()).toEqual(owned.map(nameOf).sort());
    expect(decodeAssignment(encodeAssignment(owned)).map(nameOf).sort()).toEqual(owned.map(nameOf).sort());
    expect(decodeAssignment(Buffer.alloc(0))).toEqual([]);
  });
});
