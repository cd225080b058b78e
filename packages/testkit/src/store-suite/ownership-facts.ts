import { type Lane, laneCount, type Settlement } from "postbox/store";
import { describe, expect } from "vitest";
import { testMessage } from "../messages.js";
import { commit, join, leaseMs, outbox, readAll, type What } from "./box-access.js";
import type { StoreFact } from "./store-facts.js";
import type { StoreHarness } from "./store-harness.js";

/** Each lane has one owner at a time; writes of former owners change nothing. */
export function ownershipFacts<Tx>(fact: StoreFact<Tx>): void {
  const twoRelays = async ({ store, another }: StoreHarness<Tx>) => {
    const [first, second] = [store.box(outbox), another().box(outbox)];
    return { first, second, lanes: await join(first, "relay-1") };
  };
  const numbers = (lanes: readonly Lane[]) => lanes.map(({ lane }) => lane).sort((a, b) => a - b);
  const every = Array.from({ length: laneCount }, (_, lane) => lane);

  describe("own", () => {
    fact("takes every lane once, or as many as asked for", async (harness) => {
      const { store } = harness;
      await store.box(outbox).renew("relay-1", leaseMs, "key");
      const some = await store.box(outbox).own("relay-1", 10);
      expect(some).toHaveLength(10);
      const rest = await store.box(outbox).own("relay-1", 1000);
      expect(numbers([...some, ...rest])).toEqual(every);
      expect(await store.box(outbox).own("relay-1", 1000)).toEqual([]);
    });

    fact("takes none while others own them", async (harness) => {
      const { second } = await twoRelays(harness);
      expect(await join(second, "relay-2")).toEqual([]);
      await harness.advance(leaseMs - 5000);
      expect(await join(second, "relay-2")).toEqual([]);
    });

    fact("gives each lane to one of many concurrent members", async ({ another }) => {
      const taken = await Promise.all(
        Array.from({ length: 8 }, (_, index) => join(another().box(outbox), `relay-${index}`)),
      );
      expect(numbers(taken.flat()).length).toBe(new Set(numbers(taken.flat())).size);
      // A member that came too late for a lane gets it the next time, if it has no owner.
      const late = await join(another().box(outbox), "relay-8");
      expect(numbers([...taken.flat(), ...late])).toEqual(every);
    });

    fact("takes over, with higher epochs, when the lease has expired", async (harness) => {
      const { second, lanes } = await twoRelays(harness);
      await harness.advance(leaseMs + 1);
      const taken = await join(second, "relay-2");
      expect(taken).toHaveLength(laneCount);
      for (const { lane, epoch } of taken) {
        expect(epoch).toBeGreaterThan(lanes.find((before) => before.lane === lane)?.epoch ?? Number.NaN);
      }
    });

    fact("takes none for a member whose own lease has expired", async (harness) => {
      const { second } = await twoRelays(harness);
      expect(await join(second, "relay-2")).toEqual([]);
      await harness.advance(leaseMs + 1);
      expect(await second.own("relay-2", laneCount)).toEqual([]);
      await second.renew("relay-2", leaseMs, "key");
      expect(await second.own("relay-2", laneCount)).toHaveLength(laneCount);
    });

    fact("reports whether the last owner gave a lane back, or crashed", async (harness) => {
      const { first, second, lanes } = await twoRelays(harness);
      expect(lanes.every(({ clean }) => clean)).toBe(true);
      await first.release("relay-1", lanes.slice(0, 5));
      const given = await join(second, "relay-2");
      expect(given.map(({ clean }) => clean)).toEqual(Array(5).fill(true));
      await harness.advance(leaseMs + 1);
      const taken = await join(harness.another().box(outbox), "relay-3");
      expect(taken.map(({ clean }) => clean)).toEqual(Array(laneCount).fill(false));
    });

    fact("takes at least as many lanes as asked for, or none", async (harness) => {
      const { first, second, lanes } = await twoRelays(harness);
      await first.release("relay-1", lanes.slice(1));
      await second.renew("relay-2", leaseMs, "total");
      expect(await second.own("relay-2", laneCount, { least: laneCount })).toEqual([]);
      expect(await second.own("relay-2", 10, { least: 11 })).toEqual([]);
      await first.release("relay-1");
      expect(await second.own("relay-2", laneCount, { least: laneCount })).toHaveLength(laneCount);
    });

    fact("takes from a crashed member with a valid lease, unless it has sent a heartbeat since", async (harness) => {
      const { first, second } = await twoRelays(harness);
      const seen = async () => (await second.renew("relay-2", leaseMs, "key")).others;
      const dead = await seen();
      await first.renew("relay-1", leaseMs, "key");
      expect(await second.own("relay-2", laneCount, { dead })).toEqual([]);
      expect(await second.own("relay-2", laneCount, { dead: await seen() })).toHaveLength(laneCount);
      expect((await first.renew("relay-1", leaseMs, "key")).lanes).toEqual([]);
    });

    fact("takes released lanes at once, with higher epochs, and no others", async (harness) => {
      const { first, second, lanes } = await twoRelays(harness);
      const given = lanes.slice(0, 5);
      await first.release("relay-1", given);
      const taken = await join(second, "relay-2");
      expect(numbers(taken)).toEqual(numbers(given));
      expect(taken[0]?.epoch).toBeGreaterThan(given[0]?.epoch ?? Number.NaN);
      await first.release("relay-1");
      expect(await join(second, "relay-2")).toHaveLength(laneCount - 5);
    });
  });

  describe("renew", () => {
    fact("returns the other members, and the member's own lanes", async (harness) => {
      const { first, second, lanes } = await twoRelays(harness);
      const standing = lanes.map(({ lane, epoch }) => ({ lane, epoch }));
      expect(await first.renew("relay-1", leaseMs, "key")).toEqual({ paused: false, others: [], lanes: standing });
      const member = { owner: "relay-1", order: "key", beat: 2, leaseMs, expiresInMs: expect.any(Number) };
      expect(await second.renew("relay-2", leaseMs, "key")).toEqual({ paused: false, others: [member], lanes: [] });
      await first.release("relay-1");
      expect(await second.renew("relay-2", leaseMs, "key")).toEqual({ paused: false, others: [], lanes: [] });
    });

    fact("returns when the lease of each other member expires", async (harness) => {
      const { second } = await twoRelays(harness);
      const seen = async () => {
        const { others } = await second.renew("relay-2", leaseMs, "key");
        return others[0]?.expiresInMs ?? Number.NaN;
      };
      const before = await seen();
      expect(before).toBeGreaterThan(leaseMs - 10_000);
      expect(before).toBeLessThanOrEqual(leaseMs);
      await harness.advance(leaseMs / 2);
      expect(await seen()).toBeLessThanOrEqual(before - leaseMs / 2);
      await harness.advance(leaseMs / 2);
      expect(await seen()).toBeLessThanOrEqual(0);
    });

    fact("extends the lease", async (harness) => {
      const { first, second } = await twoRelays(harness);
      await harness.advance(leaseMs - 5000);
      expect((await first.renew("relay-1", leaseMs, "key")).lanes).toHaveLength(laneCount);
      await harness.advance(leaseMs - 5000);
      expect(await join(second, "relay-2")).toEqual([]);
    });

    fact("renews an expired lease if no other member has taken the lanes", async (harness) => {
      const { first, second } = await twoRelays(harness);
      await harness.advance(leaseMs + 1);
      expect((await first.renew("relay-1", leaseMs, "key")).lanes).toHaveLength(laneCount);
      expect(await join(second, "relay-2")).toEqual([]);
    });

    fact("shows a take-over, and does not affect the new owner", async (harness) => {
      const { first, second } = await twoRelays(harness);
      await harness.advance(leaseMs + 1);
      await join(second, "relay-2", 1000);
      expect((await first.renew("relay-1", leaseMs, "key")).lanes).toEqual([]);
      await harness.advance(1001);
      expect(await join(harness.another().box(outbox), "relay-3")).toHaveLength(laneCount);
    });
  });

  describe("release", () => {
    fact("by a former owner does not affect the new one", async (harness) => {
      const { first, second, lanes } = await twoRelays(harness);
      await harness.advance(leaseMs + 1);
      const taken = await join(second, "relay-2");
      await first.release("relay-1", lanes);
      await first.release("relay-1");
      expect(await join(harness.another().box(outbox), "relay-3")).toEqual([]);
      expect((await second.settle(taken, [])).standing.size).toBe(laneCount);
    });
  });

  describe("the fence", () => {
    const settlements: readonly What[] = [
      { to: "sent" },
      { to: "wait", attempts: 7, retryInMs: 0, error: "late" },
      { to: "parked", attempts: 7, error: "late" },
    ];
    for (const settlement of settlements) {
      fact(`rejects '${settlement.to}' from a former owner, for pending and for waiting rows`, async (harness) => {
        const { first, second, lanes } = await twoRelays(harness);
        await commit(harness, testMessage("m1", { key: "a" }), testMessage("m2", { key: "b" }));
        const failed = (await readAll(first)).filter((row) => row.message.id === "m1");
        await first.settle(
          lanes,
          failed.map((row) => ({ row, to: "wait", attempts: 1, retryInMs: 0, error: "no" })),
        );
        const rows = await readAll(first);
        expect(rows).toHaveLength(2);
        await harness.advance(leaseMs + 1);
        await join(second, "relay-2");
        const before = await harness.contents(outbox);
        const { standing } = await first.settle(
          lanes,
          rows.map((row) => ({ row, ...settlement }) as Settlement),
        );
        expect([...standing]).toEqual([]);
        expect(await harness.contents(outbox)).toEqual(before);
        const after = await readAll(second);
        expect(after.map((row) => [row.message.id, row.attempts])).toEqual(
          rows.map((row) => [row.message.id, row.attempts]),
        );
      });
    }

    fact("lets an owner settle after its lease expired, until another one takes over", async (harness) => {
      const { first, lanes } = await twoRelays(harness);
      await commit(harness, testMessage("m1"));
      await harness.advance(leaseMs + 1);
      const rows = await readAll(first);
      const { standing } = await first.settle(
        lanes,
        rows.map((row) => ({ row, to: "sent" as const })),
      );
      expect(standing.size).toBe(laneCount);
      expect((await harness.contents(outbox)).pending).toEqual([]);
    });

    fact("affects the lost lane and no other", async (harness) => {
      const { first, lanes } = await twoRelays(harness);
      await commit(harness, ...["a", "b", "c", "d"].map((key) => testMessage(key, { key })));
      const rows = await readAll(first);
      const lost = rows.find((row) => row.message.id === "b")?.lane;
      const claimed = lanes.map(({ lane, epoch }) => ({ lane, epoch: lane === lost ? epoch - 1 : epoch }));
      const { standing } = await first.settle(
        claimed,
        rows.map((row) => ({ row, to: "sent" as const })),
      );
      expect([...standing].sort((a, b) => a - b)).toEqual(
        lanes.map(({ lane }) => lane).filter((lane) => lane !== lost),
      );
      expect((await harness.contents(outbox)).pending).toEqual(["b"]);
    });

    fact("covers only the lanes that were named", async (harness) => {
      const { first, lanes } = await twoRelays(harness);
      await commit(harness, testMessage("a", { key: "a" }), testMessage("b", { key: "b" }));
      const rows = await readAll(first);
      const named = lanes.filter(({ lane }) => lane === rows.find((row) => row.message.id === "a")?.lane);
      const { standing } = await first.settle(
        named,
        rows.map((row) => ({ row, to: "sent" as const })),
      );
      expect([...standing]).toEqual(named.map(({ lane }) => lane));
      expect((await harness.contents(outbox)).pending).toEqual(["b"]);
    });
  });
}
