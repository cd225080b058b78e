import type { Message } from "postbox";
import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { comparable, testMessage } from "../messages.js";
import { settlesBefore } from "../settles-before.js";
import { commit, ids, outbox, ownBox, rowOf } from "./box-access.js";
import { withoutSchedule } from "./operated-box.js";
import type { StoreFact } from "./store-facts.js";
import type { StoreHarness } from "./store-harness.js";

const hour = 3_600_000;
const type = "shop.orders.v1.Reminder";

/** A scheduled message with a schedule key can be replaced and cancelled until a relay appends it. */
export function scheduleKeyFacts<Tx>(fact: StoreFact<Tx>): void {
  const scheduled = async (harness: StoreHarness<Tx>) => (await harness.contents(outbox)).scheduled;
  const pending = async (harness: StoreHarness<Tx>) => [...(await harness.contents(outbox)).pending].sort();
  const cancel = ({ store }: StoreHarness<Tx>, scheduleKey: string, ofType = type) =>
    store.transaction((tx) => store.cancel(tx, outbox, ofType, scheduleKey));

  describe("a schedule key", () => {
    fact("lets a later message replace the scheduled one entirely", async (harness) => {
      const { box, read } = await ownBox(harness);
      await commit(harness, keyed("first", "a", hour, { key: "k", headers: { h: "1" } }));
      const second = keyed("second", "a", 2 * hour, { key: "another", subject: "s", data: new Uint8Array([1, 2]) });
      await commit(harness, second);
      expect(await scheduled(harness)).toEqual(["second"]);
      await harness.advance(hour);
      expect((await box.promote(10)).count).toBe(0);
      await harness.advance(hour);
      expect((await box.promote(10)).count).toBe(1);
      expect(ids(await read())).toEqual(["second"]);
      expect(comparable(rowOf(await read(), "second").message)).toEqual(comparable(withoutSchedule(second)));
    });

    fact("belongs to its type", async (harness) => {
      await commit(harness, keyed("m", "a", hour), keyed("n", "b", hour));
      await commit(harness, keyed("o", "a", hour, { type: "shop.orders.v1.Other" }));
      expect([...(await scheduled(harness))].sort()).toEqual(["m", "n", "o"]);
      expect(await cancel(harness, "a", "shop.orders.v1.Unknown")).toBe(false);
      expect(await cancel(harness, "a")).toBe(true);
      expect([...(await scheduled(harness))].sort()).toEqual(["n", "o"]);
    });

    fact("replaces only if its transaction commits", async (harness) => {
      const { store } = harness;
      await commit(harness, keyed("first", "a", hour));
      const failing = store.transaction(async (tx) => {
        await store.append(tx, outbox, [keyed("second", "a", hour)]);
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect(await scheduled(harness)).toEqual(["first"]);
    });

    fact("twice in one append schedules the last, besides all other messages", async (harness) => {
      const mixed = [
        keyed("1", "a", hour),
        testMessage("now"),
        keyed("2", "a", 2 * hour),
        testMessage("later", { deliverAt: inMs(hour) }),
        testMessage("past", { deliverAt: inMs(-hour) }),
      ];
      await commit(harness, ...mixed);
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["now", "past"], scheduled: ["2", "later"] });
    });

    fact("keeps the order of appends among messages that are due at the same time", async (harness) => {
      const { box, read } = await ownBox(harness);
      const deliverAt = inMs(hour);
      const same = ["c", "a", "b"].map((name) => testMessage(name, { type, deliverAt, scheduleKey: name, key: "k" }));
      await commit(harness, keyed("old", "b", 9 * hour));
      await commit(harness, ...same);
      await harness.advance(hour + 1);
      await box.promote(10);
      expect(ids(await read())).toEqual(["c", "a", "b"]);
    });

    fact("of a message that is due already replaces, too, and a relay appends it", async (harness) => {
      const { box, read } = await ownBox(harness);
      await commit(harness, keyed("first", "a", hour));
      await commit(harness, keyed("second", "a", -hour));
      expect(await harness.contents(outbox)).toMatchObject({ pending: [], scheduled: ["second"] });
      expect((await box.promote(10)).count).toBe(1);
      expect(ids(await read())).toEqual(["second"]);
    });

    fact("is free once a relay has appended its message, which can no longer be cancelled", async (harness) => {
      const { box } = await ownBox(harness);
      await commit(harness, keyed("first", "a", -1));
      await box.promote(10);
      expect(await cancel(harness, "a")).toBe(false);
      await commit(harness, keyed("second", "a", hour));
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["first"], scheduled: ["second"] });
    });

    fact("is shown to operators", async ({ store, ...harness }) => {
      await commit({ store, ...harness }, keyed("m", "a", hour), testMessage("n", { deliverAt: inMs(hour) }));
      const { messages } = await store.admin.list({ status: "scheduled" });
      expect(messages.map(({ id, scheduleKey }) => [id, scheduleKey])).toEqual([
        ["n", undefined],
        ["m", "a"],
      ]);
      expect(await store.admin.get("m")).toMatchObject([{ status: "scheduled", scheduleKey: "a" }]);
    });
  });

  describe("cancel", () => {
    fact("removes the scheduled message, once, if its transaction commits", async (harness) => {
      const { store } = harness;
      await commit(harness, keyed("m", "a", hour), keyed("n", "b", hour));
      const failing = store.transaction(async (tx) => {
        expect(await store.cancel(tx, outbox, type, "a")).toBe(true);
        expect(await store.cancel(tx, outbox, type, "a")).toBe(false);
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect([...(await scheduled(harness))].sort()).toEqual(["m", "n"]);
      expect(await cancel(harness, "a")).toBe(true);
      expect(await cancel(harness, "a")).toBe(false);
      expect(await scheduled(harness)).toEqual(["n"]);
    });

    fact("sees messages that its own transaction has scheduled", async (harness) => {
      const { store } = harness;
      await commit(harness, keyed("before", "b", hour));
      await store.transaction(async (tx) => {
        await store.append(tx, outbox, [keyed("1", "a", hour), keyed("2", "b", hour), keyed("3", "c", hour)]);
        expect(await store.cancel(tx, outbox, type, "a")).toBe(true);
        expect(await store.cancel(tx, outbox, type, "b")).toBe(true);
        await store.append(tx, outbox, [keyed("4", "a", hour)]);
      });
      expect([...(await scheduled(harness))].sort()).toEqual(["3", "4"]);
    });

    fact("does not see uncommitted messages of other transactions", "concurrentTransactions", async (harness) => {
      await whileOpen(
        harness,
        (tx) => harness.store.append(tx, outbox, [keyed("m", "a", hour)]),
        async (end) => {
          expect(await cancel(harness, "a")).toBe(false);
          await end();
        },
      );
      expect(await scheduled(harness)).toEqual(["m"]);
    });
  });

  describe("a schedule key, used concurrently:", () => {
    const atOnce = "concurrentTransactions";

    for (const before of [true, false]) {
      const title = `the second publisher waits for the first and replaces its message (${before ? "a third" : "new"})`;
      fact(title, atOnce, async (harness) => {
        if (before) await commit(harness, keyed("before", "a", hour));
        await whileOpen(
          harness,
          (tx) => harness.store.append(tx, outbox, [keyed("first", "a", hour)]),
          async (end) => {
            const second = commit(harness, keyed("second", "a", hour));
            expect(await settlesBefore(second, commit(harness, keyed("other", "b", hour)))).toBe(false);
            await end();
            await second;
          },
        );
        expect([...(await scheduled(harness))].sort()).toEqual(["other", "second"]);
      });
    }

    fact("a cancellation waits for a replacement, and removes it", atOnce, async (harness) => {
      await commit(harness, keyed("before", "a", hour));
      await whileOpen(
        harness,
        (tx) => harness.store.append(tx, outbox, [keyed("first", "a", hour)]),
        async (end) => {
          const cancelled = cancel(harness, "a");
          expect(await settlesBefore(cancelled, cancel(harness, "b"))).toBe(false);
          await end();
          expect(await cancelled).toBe(true);
        },
      );
      expect(await scheduled(harness)).toEqual([]);
    });

    fact("publishers of the same keys in different orders do not deadlock", atOnce, async (harness) => {
      const names = Array.from({ length: 50 }, (_, index) => String(index));
      for (let round = 0; round < 4; round++) {
        const batches = Array.from({ length: 6 }, (_, by) => {
          const rotated = [...names.slice(by * 7), ...names.slice(0, by * 7)];
          const order = by % 2 === 0 ? rotated : rotated.reverse();
          return commit(harness, ...order.map((name) => keyed(`${round}-${by}-${name}`, name, hour)));
        });
        await Promise.all(batches);
        expect((await scheduled(harness)).length).toBe(names.length);
      }
    });

    for (const [ends, sent] of [
      ["commits", []],
      ["rolls back", ["m"]],
    ] as const) {
      fact(`a relay skips a cancelled message until the cancellation ${ends}`, atOnce, async (harness) => {
        const { box } = await ownBox(harness);
        await commit(harness, keyed("m", "a", -hour), testMessage("other", { deliverAt: inMs(1000) }));
        await harness.advance(2000);
        await commit(harness, testMessage("next", { deliverAt: inMs(hour) }));
        const open = whileOpen(
          harness,
          async (tx) => expect(await harness.store.cancel(tx, outbox, type, "a")).toBe(true),
          async (end) => {
            expect((await box.promote(10)).count).toBe(1);
            const again = await box.promote(10);
            expect(again.count).toBe(0);
            // The relay should not come back sooner than for any other message: it could only poll.
            expect(again.nextInMs).toBeGreaterThan(hour / 2);
            await end(ends === "rolls back" ? new Error("no stock") : undefined);
          },
        );
        await (ends === "commits" ? open : expect(open).rejects.toThrow("no stock"));
        await box.promote(10);
        expect(await pending(harness)).toEqual([...sent, "other"]);
      });
    }

    fact("a message is cancelled or sent, never both", atOnce, async (harness) => {
      const names = Array.from({ length: 60 }, (_, index) => String(index).padStart(2, "0"));
      await commit(harness, ...names.map((name) => keyed(name, name, -1)));
      const promoting = Promise.all(Array.from({ length: 12 }, () => harness.another().box(outbox).promote(5)));
      const cancelled = await Promise.all(names.map((name) => cancel(harness, name)));
      await promoting;
      for (let more = 1; more > 0; ) more = (await harness.store.box(outbox).promote(100)).count;
      expect(await pending(harness)).toEqual(names.filter((_, index) => !cancelled[index]));
      expect(await scheduled(harness)).toEqual([]);
    });
  });
}

function inMs(ms: number): Date {
  return new Date(Date.now() + ms);
}

function keyed(
  id: string,
  scheduleKey: string,
  ms: number,
  more: Partial<Pick<Message, "type" | "key" | "headers" | "subject" | "data">> = {},
): Message {
  return testMessage(id, { type, deliverAt: inMs(ms), scheduleKey, ...more });
}

/**
 * Runs `during` while a transaction is open that has done `work`, until `end` is called. With an error, `end` rolls it
 * back and rejects.
 */
async function whileOpen<Tx>(
  { store }: StoreHarness<Tx>,
  work: (tx: Tx) => Promise<void>,
  during: (end: (error?: Error) => Promise<void>) => Promise<void>,
): Promise<void> {
  const [worked, mayEnd] = [gate(), gate()];
  let failure: Error | undefined;
  const open = store.transaction(async (tx) => {
    await work(tx);
    worked.open();
    await mayEnd.opened;
    if (failure !== undefined) throw failure;
  });
  open.catch(() => worked.open());
  await worked.opened;
  try {
    await during(async (error) => {
      failure = error;
      mayEnd.open();
      await open.catch(() => {});
    });
  } finally {
    mayEnd.open();
  }
  await open;
}
