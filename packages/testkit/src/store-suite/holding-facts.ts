import { describe, expect } from "vitest";
import { testMessage, testMessages } from "../messages.js";
import { commit, ids, outbox, ownBox, rowOf } from "./box-access.js";
import type { StoreFact } from "./store-facts.js";
import { emptyBox } from "./store-harness.js";

const later = { to: "wait", attempts: 1, retryInMs: 10_000, error: "broker said no" } as const;
const atOnce = { ...later, retryInMs: 0 };
const behind = { to: "wait", attempts: 0 } as const;

/** A failed message holds its key: later messages wait behind it, in order, and other keys continue. */
export function holdingFacts<Tx>(fact: StoreFact<Tx>): void {
  const inKey = (key: string, ...names: readonly string[]) => names.map((name) => testMessage(name, { key }));

  describe("hold", () => {
    fact("a failure moves the row to wait and holds its key", async (harness) => {
      const { settle } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2"));
      await settle("m1", later);
      expect(await harness.contents(outbox)).toEqual({
        pending: ["m2"],
        wait: ["m1"],
        holds: ["k"],
        scheduled: [],
        parked: [],
        done: [],
      });
    });

    fact("later rows of the key are flagged, other keys are not", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2"), ...inKey("other", "o1"), testMessage("keyless"));
      await settle("m1", later);
      await commit(harness, ...inKey("k", "m3"));
      const flags = (await read()).map((row) => [row.message.id, row.held]);
      expect(Object.fromEntries(flags)).toEqual({ m2: true, m3: true, o1: false, keyless: false });
    });

    fact("other keys of the same lane continue", async (harness) => {
      const { settle, read } = await ownBox(harness);
      const many = Array.from({ length: 200 }, (_, index) => testMessage(`m${index}`, { key: `k${index}` }));
      await commit(harness, ...many);
      const { lane } = rowOf(await read(), "m0");
      await settle("m0", later);
      const neighbours = (await read()).filter((row) => row.lane === lane);
      expect(neighbours.length).toBeGreaterThan(1);
      expect(neighbours.filter((row) => row.held)).toEqual([]);
    });

    fact("the waiting row is read only once its delay has passed, with its attempts", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1"));
      await settle("m1", { ...later, attempts: 3 });
      expect(await read()).toEqual([]);
      await harness.advance(5000);
      expect(await read()).toEqual([]);
      await harness.advance(5001);
      const [row] = await read();
      expect(row).toMatchObject({ attempts: 3, waiting: true, held: false, message: { id: "m1" } });
    });

    fact("a second failure sets the delay again", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1"));
      await settle("m1", atOnce);
      await settle("m1", { ...later, attempts: 2 });
      expect(await read()).toEqual([]);
      await harness.advance(10_001);
      expect((await read()).map((row) => [row.message.id, row.attempts])).toEqual([["m1", 2]]);
    });

    fact("queueing behind it leaves the delay as it was", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2"));
      await settle("m1", later);
      await settle("m2", behind);
      expect(await read()).toEqual([]);
      await harness.advance(10_001);
      expect(ids(await read())).toEqual(["m1", "m2"]);
    });

    fact("waiting rows are read in order of position, whatever order they failed in", async (harness) => {
      const { box, lanes, read, settle } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2", "m3", "m4"));
      const rows = await read();
      await box.settle(lanes, [{ row: rowOf(rows, "m3"), ...later }]);
      for (const id of ["m4", "m1", "m2"]) await settle(id, behind);
      await harness.advance(10_001);
      expect(ids(await read())).toEqual(["m1", "m2", "m3", "m4"]);
      expect(ids(await read(2))).toEqual(["m1", "m2"]);
    });

    fact("stays while a row waits, and ends with the last one", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2", "m3"));
      await settle("m1", atOnce);
      await settle("m2", behind);
      await settle("m1", { to: "sent" });
      expect((await harness.contents(outbox)).holds).toEqual(["k"]);
      expect(rowOf(await read(), "m3").held).toBe(true);
      await settle("m2", { to: "sent" });
      expect((await harness.contents(outbox)).holds).toEqual([]);
      expect(rowOf(await read(), "m3").held).toBe(false);
    });

    fact("does not affect rows that are appended after it ended", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1"));
      await settle("m1", atOnce);
      await settle("m1", { to: "sent" });
      await commit(harness, ...inKey("k", "m2"));
      expect((await read()).map((row) => [row.message.id, row.held, row.waiting])).toEqual([["m2", false, false]]);
    });

    fact("stays if one settle removes the last row and adds the next", async (harness) => {
      const { box, lanes, read, settle } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2", "m3"));
      await settle("m1", atOnce);
      const rows = await read();
      await box.settle(lanes, [
        { row: rowOf(rows, "m1"), to: "sent" },
        { row: rowOf(rows, "m2"), ...behind },
      ]);
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["m3"], wait: ["m2"], holds: ["k"] });
      expect((await read()).map((row) => [row.message.id, row.waiting, row.held])).toEqual([
        ["m2", true, false],
        ["m3", false, true],
      ]);
    });

    fact("never leaves a row behind: a row that is queued after its end is read at once", async (harness) => {
      const { box, lanes, read, settle } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2"));
      await settle("m1", atOnce);
      const seenHeld = rowOf(await read(), "m2");
      await settle("m1", { to: "sent" });
      await box.settle(lanes, [{ row: seenHeld, ...behind }]);
      expect(ids(await read())).toEqual(["m2"]);
      await settle("m2", { to: "sent" });
      expect(await harness.contents(outbox)).toEqual(emptyBox);
    });

    fact("affects one message alone if it has no key", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, ...testMessages("m", 200));
      const { lane } = rowOf(await read(), "m-0");
      await settle("m-0", later);
      const neighbours = (await read()).filter((row) => row.lane === lane);
      expect(neighbours.length).toBeGreaterThan(0);
      expect(neighbours.filter((row) => row.held)).toEqual([]);
      await harness.advance(10_001);
      await settle("m-0", { to: "sent" });
      expect(await harness.contents(outbox)).toMatchObject({ wait: [], holds: [] });
    });

    fact("a parked message can hold its key: present and later messages wait", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2"), ...inKey("w", "w1", "w2"));
      await settle("m1", { to: "parked", attempts: 1, error: "never", hold: true });
      await settle("m2", behind);
      await settle("w1", atOnce);
      await settle("w1", { to: "parked", attempts: 2, error: "never", hold: true });
      await settle("w2", behind);
      await harness.advance(3_600_000);
      expect(await read()).toEqual([]);
      const { wait, holds, parked } = await harness.contents(outbox);
      expect({ wait, holds }).toEqual({ wait: ["m2", "w2"], holds: ["k", "w"] });
      expect(parked.map(({ id }) => id)).toEqual(["m1", "w1"]);
    });

    const ends = [
      ["fails", atOnce],
      ["is sent", { to: "sent" }],
      ["is parked and holds nothing", { to: "parked", attempts: 1, error: "never" }],
    ] as const;
    for (const [what, end] of ends) {
      fact(`of a parked message does not end when an earlier message ${what}`, async (harness) => {
        const { box, lanes, read, settle } = await ownBox(harness);
        const parked = { to: "parked", attempts: 1, error: "never", hold: true } as const;
        for (const [key, together] of [
          ["j", [0, 1]],
          ["k", [1, 0]],
          ["l", undefined],
        ] as const) {
          const [one, two, three] = ["1", "2", "3"].map((name) => key + name) as [string, string, string];
          await commit(harness, ...inKey(key, one, two, three));
          await settle(one, atOnce);
          await settle(two, behind);
          const rows = await read();
          const both = [
            { row: rowOf(rows, two), ...parked },
            { row: rowOf(rows, one), ...end },
          ] as const;
          if (together === undefined) for (const each of both) await box.settle(lanes, [each]);
          else await box.settle(lanes, [both[together[0]], both[together[1]]]);
        }
        await harness.advance(3_600_000);
        expect((await read()).map((row) => [row.message.id, row.held])).toEqual([
          ["j3", true],
          ["k3", true],
          ["l3", true],
        ]);
        expect((await harness.contents(outbox)).holds).toEqual(["j", "k", "l"]);
      });
    }

    fact("a message can wait alone, without its key", async (harness) => {
      const { box, lanes, read } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2", "m3"));
      const rows = await read();
      await box.settle(lanes, [{ row: rowOf(rows, "m1"), ...later }], { alone: true });
      await box.settle(lanes, [{ row: rowOf(rows, "m2"), ...atOnce }], { alone: true });
      expect((await read()).map((row) => [row.message.id, row.waiting, row.held])).toEqual([
        ["m2", true, false],
        ["m3", false, false],
      ]);
      await box.settle(lanes, [{ row: rowOf(await read(), "m2"), to: "sent" }], { alone: true });
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["m3"], wait: ["m1"], holds: ["m1"] });
    });

    fact("a failed message can keep its place, with its attempts", async (harness) => {
      const { settle, read } = await ownBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2"));
      await settle("m1", { to: "pending", attempts: 4, error: "not now" });
      expect((await read()).map((row) => [row.message.id, row.attempts, row.held])).toEqual([
        ["m1", 4, false],
        ["m2", 0, false],
      ]);
      await settle("m1", { to: "sent" });
      expect((await harness.contents(outbox)).pending).toEqual(["m2"]);
    });

    fact("many waiting rows of one key do not keep others from being read", async (harness) => {
      const { box, lanes, read } = await ownBox(harness);
      await commit(harness, ...Array.from({ length: 65 }, (_, n) => testMessage(`probe-${n}`, { key: `k${n}` })));
      const probes = await read();
      // With more keys than lanes, two share a lane.
      const lane = probes.map((row) => row.lane).find((each, index, all) => all.indexOf(each) !== index);
      const [first, second] = probes.filter((row) => row.lane === lane).map(({ message }) => message.key as string);
      await commit(harness, ...testMessages("many", 50, { key: first as string }));
      await commit(harness, ...testMessages("few", 3, { key: second as string }));
      const rows = await read();
      await box.settle(
        lanes,
        rows.map((row) => (row.message.id.startsWith("probe") ? { row, to: "sent" } : { row, ...atOnce })),
      );
      const due = (await read(10)).map((row) => row.message.id);
      expect(due.length).toBeLessThanOrEqual(20);
      expect(due).toEqual(expect.arrayContaining(["many-0", "many-1", "few-0", "few-1", "few-2"]));
    });
  });
}
