import type { Row, Writers } from "postbox/store";
import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { testMessage, testMessages } from "../messages.js";
import { commit, ids, leaseMs, outbox, ownBox, rowOf } from "./box-access.js";
import type { StoreFact } from "./store-facts.js";

/** Reading rows, and what happens to a row once it is settled. */
export function settlingFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("late", () => {
    fact("returns unknown rows in a range, with their age", async (harness) => {
      const { box, read, settle } = await ownBox(harness);
      await commit(harness, ...testMessages("a", 5, { key: "a" }), testMessage("elsewhere", { key: "b" }));
      const rows = await read();
      const { lane } = rowOf(rows, "a-0");
      const at = (id: string) => rowOf(rows, id).position;
      const { rows: late } = await box.late([{ lane, after: at("a-0"), upTo: at("a-3"), known: [at("a-2")] }], 10);
      expect(ids(late)).toEqual(["a-1", "a-3"]);
      for (const { ageMs, held, waiting } of late) {
        expect(ageMs).toBeGreaterThanOrEqual(0);
        expect(ageMs).toBeLessThan(60_000);
        expect({ held, waiting }).toEqual({ held: false, waiting: false });
      }
      await settle("a-0", { to: "wait", attempts: 1, retryInMs: 10_000, error: "no" });
      const held = await box.late([{ lane, after: 0, upTo: at("a-1"), known: [] }], 10);
      expect(held.rows.map((row) => [row.message.id, row.held])).toEqual([["a-1", true]]);
      expect((await box.late([], 10)).rows).toEqual([]);
    });

    fact("returns the lowest positions of all lanes first, up to the limit", async (harness) => {
      const { box, read } = await ownBox(harness);
      await commit(harness, ...["a", "b", "c", "a", "b"].map((key, index) => testMessage(`m-${index}`, { key })));
      const rows = await read();
      const upTo = Math.max(...rows.map(({ position }) => position));
      const lanes = [...new Set(rows.map(({ lane }) => lane))];
      const page = async (after: number) => {
        const gaps = lanes.map((lane) => ({ lane, after, upTo, known: [] }));
        return (await box.late(gaps, 3)).rows;
      };
      const first = await page(0);
      expect(ids(first)).toEqual(["m-0", "m-1", "m-2"]);
      expect(ids(await page(rowOf(first, "m-2").position))).toEqual(["m-3", "m-4"]);
    });

    fact("finds rows that commit below the position that was read", "lateCommits", async (harness) => {
      const { box, read } = await ownBox(harness);
      const [appended, mayCommit] = [gate(), gate()];
      const slow = harness.store.transaction(async (tx) => {
        await harness.store.append(tx, outbox, [testMessage("early", { key: "k" })]);
        appended.open();
        await mayCommit.opened;
      });
      await appended.opened;
      await commit(harness, testMessage("later", { key: "k" }));
      const { lane, position: upTo } = rowOf(await read(), "later");
      const gap = { lane, after: 0, upTo, known: [upTo] };
      const before = await box.late([gap], 10);
      expect(before.rows).toEqual([]);
      mayCommit.open();
      await slow;
      const after = await box.late([gap], 10);
      expect(ids(after.rows)).toEqual(["early"]);
      // It reports the same writers in progress as a read does.
      expect(before.writers?.without(after.writers as Writers).none).toBe(false);
      expect((await box.read([{ lane, after: upTo, limit: 10 }])).rows).toEqual([]);
    });
  });

  describe("identity", () => {
    fact("a row is identified by its message's id, since a failover may reuse its position", async (harness) => {
      const { box, lanes, read } = await ownBox(harness);
      await commit(harness, ...testMessages("m", 3, { key: "k" }));
      const [first, second] = await read();
      await box.settle(lanes, [{ row: second as Row, to: "wait", attempts: 1, retryInMs: 0, error: "no" }]);
      const before = await read();
      const others = before.map((row) => ({
        ...row,
        message: testMessage("lost in the failover", { key: "k" }),
        crashes: 3,
      }));
      expect(others.map(({ waiting }) => waiting).sort()).toEqual([false, false, true]);
      await box.suspect(lanes, others);
      for (const what of [
        { to: "sent" },
        { to: "pending", attempts: 2, error: "no" },
        { to: "wait", attempts: 2, retryInMs: 60_000, error: "no" },
        { to: "parked", attempts: 2, error: "no", hold: true },
        { to: "dropped", reason: "no" },
      ] as const) {
        const { standing } = await box.settle(
          lanes,
          others.map((row) => ({ row, ...what })),
          { keep: true },
        );
        expect(standing.size).toBe(lanes.length);
      }
      expect(await read()).toEqual(before);
      await box.settle(lanes, [{ row: first as Row, to: "sent" }]);
      expect(ids(await read()).sort()).toEqual(["m-1", "m-2"]);
    });
  });

  describe("suspect", () => {
    fact("stores the crashes of pending and of waiting rows, and an outcome clears them", async (harness) => {
      const { box, lanes, read, settle } = await ownBox(harness);
      await commit(harness, testMessage("m1", { key: "a" }), testMessage("m2", { key: "b" }));
      await settle("m2", { to: "wait", attempts: 1, retryInMs: 0, error: "no" });
      const crashes = async () => (await read()).map((row) => [row.message.id, row.crashes]);
      expect(await crashes()).toEqual([
        ["m1", 0],
        ["m2", 0],
      ]);
      const suspects = (await read()).map((row, index) => ({ ...row, crashes: index + 2 }));
      expect((await box.suspect(lanes, suspects)).size).toBe(lanes.length);
      expect(await crashes()).toEqual([
        ["m1", 2],
        ["m2", 3],
      ]);
      await settle("m1", { to: "wait", attempts: 1, retryInMs: 0, error: "no" });
      await settle("m2", { to: "wait", attempts: 2, retryInMs: 0, error: "no" });
      expect(await crashes()).toEqual([
        ["m1", 0],
        ["m2", 0],
      ]);
    });

    fact("changes nothing in lanes of other owners", async (harness) => {
      const { box, lanes, read } = await ownBox(harness);
      await commit(harness, testMessage("m1"));
      const stale = lanes.map(({ lane, epoch }) => ({ lane, epoch: epoch - 1 }));
      const suspects = (await read()).map((row) => ({ ...row, crashes: 7 }));
      expect((await box.suspect(stale, suspects)).size).toBe(0);
      expect((await read()).map((row) => row.crashes)).toEqual([0]);
    });
  });

  describe("read", () => {
    fact("reports the transactions that may still commit rows below", "lateCommits", async (harness) => {
      const { box } = await ownBox(harness);
      const every = Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 10 }));
      const { writers: before } = await box.read(every);
      const [appended, mayEnd] = [gate(), gate()];
      const slow = harness.store.transaction(async (tx) => {
        await harness.store.append(tx, outbox, [testMessage("early")]);
        appended.open();
        await mayEnd.opened;
      });
      await appended.opened;
      await commit(harness, testMessage("later"));
      const { rows, writers } = await box.read(every);
      expect(ids(rows)).toEqual(["later"]);
      // Other tests may use the same server.
      const candidates = writers?.without(before as Writers) as Writers;
      expect(candidates.none).toBe(false);
      const { writers: still } = await box.read(every);
      expect(candidates.without(candidates.without(still as Writers)).none).toBe(false);
      mayEnd.open();
      await slow;
      const after = await box.read(every);
      expect(ids(after.rows).sort()).toEqual(["early", "later"]);
      expect(candidates.without(after.writers as Writers).none).toBe(false);
    });

    fact(
      "stops at its limit of bytes, returns at least one row, and reports which lanes have more",
      async (harness) => {
        const { box } = await ownBox(harness);
        const large = { data: new Uint8Array(10_000) };
        await commit(
          harness,
          ...testMessages("a", 4, { key: "a", ...large }),
          ...testMessages("b", 4, { key: "b", ...large }),
        );
        const { rows: all } = await box.read(Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 10 })));
        const [a, b] = [rowOf(all, "a-0").lane, rowOf(all, "b-0").lane];
        const empty = [...Array(64).keys()].find((lane) => lane !== a && lane !== b) as number;
        const lanes = [empty, a, b].map((lane) => ({ lane, limit: 10 }));
        const some = await box.read(lanes, { maxBytes: 15_000 });
        expect(ids(some.rows)).toEqual(["a-0", "a-1"]);
        expect([a, b].every((lane) => some.more.has(lane))).toBe(true);
        expect(some.more.has(empty)).toBe(false);
        expect(ids((await box.read(lanes, { maxBytes: 1 })).rows)).toEqual(["a-0"]);
        const rest = await box.read(lanes, { maxBytes: 1_000_000 });
        expect(rest.rows).toHaveLength(8);
        expect(rest.more).toEqual(new Set());
        const gaps = [a, b].map((lane) => ({ lane, after: 0, upTo: Number.MAX_SAFE_INTEGER, known: [] }));
        const late = await box.late(gaps, 100, { maxBytes: 15_000 });
        expect(ids(late.rows)).toEqual(["a-0", "a-1"]);
        expect(late.more).toBe(true);
        expect((await box.late(gaps, 100)).more).toBe(false);
        await box.settle(
          await box.renew("relay-1", leaseMs, "key").then(({ lanes: own }) => own),
          rest.rows.map((row) => ({ row, to: "wait", attempts: 1, retryInMs: 0, error: "no" })),
        );
        expect(await box.due(lanes, { maxBytes: 15_000 })).toHaveLength(2);
        expect(await box.due(lanes, { maxBytes: 1 })).toHaveLength(1);
        expect(ids(await box.due(lanes, { except: ["a"] }))).toEqual(["b-0", "b-1", "b-2", "b-3"]);
      },
    );

    fact(
      "reports how far positions were drawn; later rows below come from open transactions",
      "lateCommits",
      async (harness) => {
        const { box } = await ownBox(harness);
        const every = Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 10 }));
        const { drawn: before } = await box.read(every);
        const [appended, mayEnd] = [gate(), gate()];
        const slow = harness.store.transaction(async (tx) => {
          await harness.store.append(tx, outbox, [testMessage("early")]);
          appended.open();
          await mayEnd.opened;
        });
        await appended.opened;
        const { rows, drawn, more, writers } = await box.read(every);
        expect([rows, more]).toEqual([[], new Set()]);
        expect(drawn).toBe(before + 1);
        expect(writers?.none).toBe(false);
        mayEnd.open();
        await slow;
        expect((await box.read(every.map((read) => ({ ...read, after: drawn })))).rows).toEqual([]);
        expect(ids((await box.read(every)).rows)).toEqual(["early"]);
      },
    );

    fact("returns the first rows of each lane, up to the limit", async (harness) => {
      const { box } = await ownBox(harness);
      await commit(harness, ...testMessages("a", 5, { key: "a" }), ...testMessages("b", 5, { key: "b" }));
      const { rows: all } = await box.read(Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 10 })));
      const [laneA, laneB] = [rowOf(all, "a-0").lane, rowOf(all, "b-0").lane];
      expect(laneA).not.toBe(laneB);
      const { rows } = await box.read([
        { lane: laneA, limit: 2 },
        { lane: laneB, limit: 3 },
      ]);
      expect(ids(rows.filter(({ lane }) => lane === laneA))).toEqual(["a-0", "a-1"]);
      expect(ids(rows.filter(({ lane }) => lane === laneB))).toEqual(["b-0", "b-1", "b-2"]);
      expect(ids((await box.read([{ lane: laneB, limit: 10 }])).rows)).toEqual(
        testMessages("b", 5).map(({ id }) => id),
      );
    });

    fact("returns only rows above a position, but all due rows", async (harness) => {
      const { box, read, settle } = await ownBox(harness);
      await commit(harness, ...testMessages("a", 4, { key: "a" }), testMessage("b", { key: "b" }));
      await settle("b", { to: "wait", attempts: 1, retryInMs: 0, error: "no" });
      const rows = await read();
      const { lane, position: after } = rowOf(rows, "a-1");
      expect(ids((await box.read([{ lane, after, limit: 10 }])).rows)).toEqual(["a-2", "a-3"]);
      const waiting = rowOf(rows, "b");
      expect(ids(await box.due([{ lane: waiting.lane, limit: 10 }]))).toEqual(["b"]);
    });

    fact("returns due rows of a lane up to the limit, shared among its keys", async (harness) => {
      const { box, lanes, read } = await ownBox(harness);
      const messages = Array.from({ length: 200 }, (_, n) => testMessage(`m${n}`, { key: `k${n}` }));
      await commit(harness, ...messages, ...messages.map((each) => ({ ...each, id: `${each.id}-2` })));
      const rows = await read();
      await box.settle(
        lanes,
        rows.map((row) => ({ row, to: "wait", attempts: 1, retryInMs: 0, error: "no" })),
      );
      const due = await box.due(lanes.map(({ lane }) => ({ lane, limit: 3 })));
      const counts = lanes.map(({ lane }) => due.filter((row) => row.lane === lane).length);
      expect(Math.max(...counts)).toBe(3);
      expect(counts.filter((count) => count === 0).length).toBe(
        lanes.length - new Set(rows.map(({ lane }) => lane)).size,
      );
    });

    fact("changes nothing", async (harness) => {
      const { read } = await ownBox(harness);
      await commit(harness, testMessage("m1"), testMessage("m2"));
      expect(await read()).toEqual(await read());
    });

    fact("puts all messages of a key into one lane", async (harness) => {
      const { read } = await ownBox(harness);
      await commit(harness, ...testMessages("m", 50, { key: "k" }));
      expect(new Set((await read()).map(({ lane }) => lane)).size).toBe(1);
    });
  });

  describe("settle", () => {
    fact("keeps sent rows if asked to, and no others", async (harness) => {
      const { box, lanes, read, settle } = await ownBox(harness);
      await commit(harness, ...["waited", "sent", "parked", "failed"].map((id) => testMessage(id, { key: id })));
      await settle("waited", { to: "wait", attempts: 1, retryInMs: 0, error: "no" });
      const rows = await read();
      const settlements = [
        { row: rowOf(rows, "waited"), to: "sent" },
        { row: rowOf(rows, "sent"), to: "sent" },
        { row: rowOf(rows, "parked"), to: "parked", attempts: 1, error: "never" },
        { row: rowOf(rows, "failed"), to: "wait", attempts: 1, retryInMs: 0, error: "no" },
      ] as const;
      await box.settle(lanes, settlements, { keep: true });
      const { done, pending, wait } = await harness.contents(outbox);
      expect({ done, pending, wait }).toEqual({ done: ["waited", "sent"], pending: [], wait: ["failed"] });
      await box.settle(lanes, settlements, { keep: true });
      expect((await harness.contents(outbox)).done).toEqual(["waited", "sent"]);
    });

    fact("removes sent rows, and no others", async (harness) => {
      const { box, lanes, read } = await ownBox(harness);
      await commit(harness, ...testMessages("m", 6, { key: "k" }));
      const rows = (await read()).filter((_, index) => index % 2 === 0);
      const { standing } = await box.settle(
        lanes,
        rows.map((row) => ({ row, to: "sent" as const })),
      );
      expect(standing.size).toBe(lanes.length);
      expect(ids(await read())).toEqual(["m-1", "m-3", "m-5"]);
      expect((await harness.contents(outbox)).parked).toEqual([]);
    });

    fact("does not affect a late commit below a sent row", "concurrentTransactions", async (harness) => {
      const { store } = harness;
      const { settle } = await ownBox(harness);
      const appended = gate();
      const go = gate();
      const slow = store.transaction(async (tx) => {
        await store.append(tx, outbox, [testMessage("late", { key: "k" })]);
        appended.open();
        await go.opened;
      });
      await Promise.race([appended.opened, slow]);
      try {
        await commit(harness, testMessage("early", { key: "k" }));
        await settle("early", { to: "sent" });
      } finally {
        go.open();
        await slow;
      }
      expect((await harness.contents(outbox)).pending).toEqual(["late"]);
    });

    fact("is harmless when repeated", async (harness) => {
      const { box, lanes, read } = await ownBox(harness);
      await commit(harness, ...["a", "b", "c", "d"].map((key) => testMessage(key, { key })));
      const rows = await read();
      const settlements = [
        { row: rowOf(rows, "a"), to: "sent" },
        { row: rowOf(rows, "b"), to: "wait", attempts: 1, retryInMs: 1000, error: "no" },
        { row: rowOf(rows, "c"), to: "parked", attempts: 3, error: "never" },
      ] as const;
      await box.settle(lanes, settlements);
      const once = await harness.contents(outbox);
      expect((await box.settle(lanes, settlements)).standing.size).toBe(lanes.length);
      expect(await harness.contents(outbox)).toEqual(once);
      expect(once).toEqual({
        pending: ["d"],
        wait: ["b"],
        holds: ["b"],
        scheduled: [],
        parked: [{ id: "c", error: "never" }],
        done: [],
      });
    });

    fact("accepts an empty list, and returns the lanes with a current epoch", async (harness) => {
      const { box, lanes } = await ownBox(harness);
      expect((await box.settle(lanes, [])).standing.size).toBe(lanes.length);
      expect((await box.settle([], [])).standing.size).toBe(0);
    });

    fact("does a thousand of each kind at once", async (harness) => {
      const { box, lanes, read } = await ownBox(harness);
      await commit(harness, ...["sent", "wait", "parked"].flatMap((to) => testMessages(to, 1000)));
      const rows = await read(3000);
      await box.settle(
        lanes,
        rows.map((row) => {
          const to = row.message.id.split("-")[0];
          if (to === "sent") return { row, to };
          if (to === "wait") return { row, to, attempts: 1, retryInMs: 1000, error: "no" };
          return { row, to: "parked", attempts: 1, error: "never" };
        }),
      );
      const { pending, wait, holds, parked } = await harness.contents(outbox);
      expect([pending.length, wait.length, holds.length, parked.length]).toEqual([0, 1000, 1000, 1000]);
    });
  });

  describe("park", () => {
    fact("stores the message with its error, out of the queue", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, testMessage("m1", { key: "k" }), testMessage("m2", { key: "k" }));
      await settle("m1", { to: "parked", attempts: 5, error: "too large: ∞ > 1" });
      expect(await harness.contents(outbox)).toEqual({
        pending: ["m2"],
        wait: [],
        holds: [],
        scheduled: [],
        parked: [{ id: "m1", error: "too large: ∞ > 1" }],
        done: [],
      });
      const rows = await read();
      expect(ids(rows)).toEqual(["m2"]);
      expect(rows[0]?.held).toBe(false);
    });

    fact("releases the key of a waiting message without others behind it", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, testMessage("m1", { key: "k" }), testMessage("m2", { key: "k" }));
      await settle("m1", { to: "wait", attempts: 1, retryInMs: 0, error: "no" });
      await settle("m1", { to: "parked", attempts: 2, error: "never" });
      const rows = await read();
      expect(rows.map((row) => [row.message.id, row.held])).toEqual([["m2", false]]);
      expect((await harness.contents(outbox)).holds).toEqual([]);
    });

    fact("keeps the key held for the messages behind it", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, testMessage("m1", { key: "k" }), testMessage("m2", { key: "k" }));
      await settle("m1", { to: "wait", attempts: 1, retryInMs: 0, error: "no" });
      await settle("m2", { to: "wait", attempts: 0 });
      await settle("m1", { to: "parked", attempts: 2, error: "never" });
      await commit(harness, testMessage("m3", { key: "k" }));
      const rows = await read();
      expect(rows.map((row) => [row.message.id, row.waiting, row.held])).toEqual([
        ["m2", true, false],
        ["m3", false, true],
      ]);
    });
  });
}
