import { inboxOf } from "postbox";
import { describe, expect } from "vitest";
import { comparable, testMessage } from "../messages.js";
import { commit, ids, outbox, ownBox, rowOf } from "./box-access.js";
import { scheduledMessage, withoutSchedule } from "./operated-box.js";
import type { StoreFact } from "./store-facts.js";

const hour = 3_600_000;

/** A scheduled message waits outside of the queue, where it holds no key; when it is due, it is appended. */
export function scheduleFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("a schedule", () => {
    fact("keeps a message until it is due; then it is like any other", async (harness) => {
      const { box, read } = await ownBox(harness);
      const message = scheduledMessage("m", hour, "k");
      await commit(harness, message);
      expect(await harness.contents(outbox)).toMatchObject({ pending: [], scheduled: ["m"], holds: [] });
      const early = await box.promote(10);
      expect(early.count).toBe(0);
      expect(early.nextInMs).toBeGreaterThan(hour - 60_000);
      expect(early.nextInMs).toBeLessThanOrEqual(hour);
      await harness.advance(hour);
      expect(await read()).toEqual([]);
      expect(await box.promote(10)).toEqual({ count: 1 });
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["m"], scheduled: [] });
      const row = rowOf(await read(), "m");
      expect(row).toMatchObject({ attempts: 0, waiting: false, held: false });
      expect(comparable(row.message)).toEqual(comparable(withoutSchedule(message)));
      expect(await box.promote(10)).toEqual({ count: 0 });
    });

    fact("in the past sends at once", async (harness) => {
      const { read } = await ownBox(harness);
      const message = scheduledMessage("m", -1);
      await commit(harness, message, testMessage("n"));
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["m", "n"], scheduled: [] });
      expect(comparable(rowOf(await read(), "m").message)).toEqual(comparable(withoutSchedule(message)));
    });

    fact("takes every moment that a message may have", async (harness) => {
      const texts = [
        "0001-01-01T00:00:00Z",
        "2020-01-31T24:00:00+23:59",
        "2020-02-30t00:00:00-23:59",
        `2020-01-01T00:00:00.${"1".repeat(500)}Z`,
        "9999-12-31T23:59:59.999Z",
      ];
      const messages = texts.map((deliverAt, n) => testMessage(`${n}`, { deliverAt }));
      await commit(harness, ...messages);
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["0", "1", "2", "3"], scheduled: ["4"] });
    });

    fact("belongs to one box: relays of others neither append its messages nor replace them", async (harness) => {
      const { store, contents } = harness;
      const boxes = [outbox, inboxOf("billing"), inboxOf("shipping")];
      for (const name of boxes) {
        expect(await store.box(name).promote(10)).toEqual({ count: 0 });
        const keyed = { ...scheduledMessage(`keyed of ${name}`, hour), scheduleKey: "one" };
        await store.transaction((tx) => store.append(tx, name, [scheduledMessage(`m of ${name}`, 2 * hour), keyed]));
      }
      for (const name of boxes) {
        const inMs = (await store.box(name).promote(10)).nextInMs ?? Number.NaN;
        expect(inMs).toBeGreaterThan(hour - 60_000);
        expect(inMs).toBeLessThanOrEqual(hour);
      }
      await harness.advance(3 * hour);
      for (const [index, name] of boxes.entries()) {
        expect(await store.box(name).promote(10)).toEqual({ count: 2 });
        for (const left of boxes.slice(index + 1)) expect((await contents(left)).scheduled).toHaveLength(2);
        expect((await contents(name)).pending).toEqual([`keyed of ${name}`, `m of ${name}`]);
      }
    });

    fact("is stored only if its transaction commits", async (harness) => {
      const { store } = harness;
      const failing = store.transaction(async (tx) => {
        await store.append(tx, outbox, [scheduledMessage("m", hour)]);
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect((await harness.contents(outbox)).scheduled).toEqual([]);
      await store.transaction((tx) => store.append(tx, outbox, [testMessage("now"), scheduledMessage("then", hour)]));
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["now"], scheduled: ["then"] });
    });

    fact("is ordered by due time, then by the order of appends", async (harness) => {
      const { box, read } = await ownBox(harness);
      const deliverAt = new Date(Date.now() + 2 * hour);
      const same = ["b", "c", "d"].map((id) => testMessage(id, { deliverAt, key: "k" }));
      await commit(harness, scheduledMessage("e", 3 * hour, "k"), ...same, scheduledMessage("a", hour, "k"));
      await harness.advance(4 * hour);
      expect(await box.promote(2)).toEqual({ count: 2, nextInMs: 0 });
      expect((await harness.contents(outbox)).pending).toEqual(["a", "b"]);
      expect(await box.promote(10)).toEqual({ count: 3 });
      expect(ids(await read())).toEqual(["a", "b", "c", "d", "e"]);
    });

    fact("appends behind messages that were appended meanwhile, and does not hold its key", async (harness) => {
      const { box, read } = await ownBox(harness);
      await commit(harness, scheduledMessage("s", hour, "k"));
      await commit(harness, testMessage("m", { key: "k" }));
      expect((await read()).map((row) => [row.message.id, row.held])).toEqual([["m", false]]);
      await harness.advance(hour);
      await box.promote(10);
      expect((await read()).map((row) => [row.message.id, row.held])).toEqual([
        ["m", false],
        ["s", false],
      ]);
    });

    fact("that becomes due while its key is held queues behind the waiting messages", async (harness) => {
      const { box, read, settle } = await ownBox(harness);
      await commit(harness, scheduledMessage("s", hour, "k"), testMessage("m", { key: "k" }));
      await settle("m", { to: "wait", attempts: 1, retryInMs: 2 * hour, error: "no" });
      await harness.advance(hour);
      await box.promote(10);
      expect((await read()).map((row) => [row.message.id, row.held])).toEqual([["s", true]]);
    });

    fact("gives each message to one of many concurrent calls", "concurrentTransactions", async (harness) => {
      const { read } = await ownBox(harness);
      const messages = Array.from({ length: 40 }, (_, index) => scheduledMessage(`m-${index}`, hour));
      await commit(harness, ...messages);
      await harness.advance(hour + 1);
      const some = await Promise.all([20, 20, 40, 5].map((limit) => harness.another().box(outbox).promote(limit)));
      let count = some.reduce((sum, each) => sum + each.count, 0);
      // A relay may skip messages that another one is appending.
      for (let more = 1; more > 0; count += more) more = (await harness.store.box(outbox).promote(40)).count;
      expect(count).toBe(40);
      expect(ids(await read()).sort()).toEqual(messages.map(({ id }) => id).sort());
      expect((await harness.contents(outbox)).scheduled).toEqual([]);
    });

    fact("messages of one append keep their order, whichever of them were scheduled", async (harness) => {
      const { store } = harness;
      const messages = ["1", "2", "3"].map((id) =>
        testMessage(id, { key: "k", ...(id === "2" && { deliverAt: new Date(Date.now() - 1000) }) }),
      );
      await store.transaction((tx) => store.append(tx, outbox, messages, { strictKeyOrder: true }));
      expect((await harness.contents(outbox)).pending).toEqual(["1", "2", "3"]);
    });
  });
}
