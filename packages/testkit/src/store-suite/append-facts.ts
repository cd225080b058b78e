import fc from "fast-check";
import { describe, expect } from "vitest";
import { arbitraryMessage } from "../arbitrary-message.js";
import { gate } from "../gate.js";
import { comparable, testMessage, testMessages } from "../messages.js";
import { commit, ids, join, outbox, ownBox, readAll } from "./box-access.js";
import type { StoreFact } from "./store-facts.js";

/** Appends are atomic with the user's own writes, in order, and byte for byte. */
export function appendFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("append", () => {
    fact("commits with the user's own write", async ({ store, effect, effects, contents }) => {
      await store.transaction(async (tx) => {
        await effect(tx, "order-1");
        await store.append(tx, outbox, [testMessage("m1")]);
      });
      expect(await effects()).toEqual(["order-1"]);
      expect((await contents(outbox)).pending).toEqual(["m1"]);
    });

    fact("rolls back with the user's own write", async ({ store, effect, effects, contents }) => {
      const failing = store.transaction(async (tx) => {
        await effect(tx, "order-1");
        await store.append(tx, outbox, [testMessage("m1")]);
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect(await effects()).toEqual([]);
      expect((await contents(outbox)).pending).toEqual([]);
    });

    fact("is invisible to others until the commit", "concurrentTransactions", async ({ store, another, contents }) => {
      await store.transaction(async (tx) => {
        await store.append(tx, outbox, [testMessage("m1")]);
        expect(await readAll(another().box(outbox))).toEqual([]);
      });
      expect((await contents(outbox)).pending).toEqual(["m1"]);
    });

    fact("loses only its own messages when it rolls back amid others", async (harness) => {
      const { store, contents } = harness;
      const each = Array.from({ length: 9 }, (_, index) =>
        store.transaction(async (tx) => {
          await store.append(tx, outbox, [testMessage(`a${index}`), testMessage(`b${index}`)]);
          if (index % 3 === 1) throw new Error("no stock");
        }),
      );
      const outcomes = await Promise.allSettled(each);
      expect(outcomes.filter(({ status }) => status === "rejected")).toHaveLength(3);
      const survivors = [0, 2, 3, 5, 6, 8].flatMap((index) => [`a${index}`, `b${index}`]);
      expect([...(await contents(outbox)).pending].sort()).toEqual(survivors.sort());
    });

    fact("keeps the order within a call and from call to call", async (harness) => {
      await harness.store.transaction(async (tx) => {
        await harness.store.append(tx, outbox, testMessages("a", 20, { key: "k" }));
        await harness.store.append(tx, outbox, testMessages("b", 20, { key: "k" }));
      });
      await commit(harness, ...testMessages("c", 20, { key: "k" }));
      const rows = await readAll(harness.store.box(outbox));
      const expected = ["a", "b", "c"].flatMap((name) => testMessages(name, 20).map(({ id }) => id));
      expect(ids(rows)).toEqual(expected);
      expect((await harness.contents(outbox)).pending).toEqual(expected);
      expect(rows.every((row, index) => index === 0 || row.position > (rows[index - 1]?.position ?? 0))).toBe(true);
    });

    fact("accepts thousands in one call, and none", async (harness) => {
      await commit(harness);
      await commit(harness, ...testMessages("m", 5000));
      const { pending } = await harness.contents(outbox);
      expect(pending).toEqual(testMessages("m", 5000).map(({ id }) => id));
    });

    fact("returns every message exactly as it was", async (harness) => {
      const { box, lanes } = await ownBox(harness);
      const batch = fc.uniqueArray(arbitraryMessage(), { minLength: 1, maxLength: 12, selector: ({ id }) => id });
      await fc.assert(
        fc.asyncProperty(batch, async (messages) => {
          await commit(harness, ...messages);
          const rows = await readAll(box);
          const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1);
          const read = rows.map((row) => row.message).sort(byId);
          expect(read.map(comparable)).toStrictEqual([...messages].sort(byId).map(comparable));
          expect(rows.every((row) => row.attempts === 0 && !row.waiting && !row.held)).toBe(true);
          await box.settle(
            lanes,
            rows.map((row) => ({ row, to: "sent" as const })),
          );
        }),
        { numRuns: 20 },
      );
    });

    fact("keeps the data, even if the caller changes the bytes later", async (harness) => {
      const data = new Uint8Array([1, 2, 3]);
      await commit(harness, testMessage("m1", { data }));
      data.fill(9);
      const [row] = await readAll(harness.store.box(outbox));
      expect([...(row?.message.data ?? [])]).toEqual([1, 2, 3]);
    });

    fact("shows a late commit, with its lower position, in its place", "lateCommits", async (harness) => {
      const { store } = harness;
      const appended = gate();
      const go = gate();
      const slow = store.transaction(async (tx) => {
        await store.append(tx, outbox, [testMessage("m1", { key: "k" })]);
        appended.open();
        await go.opened;
      });
      await Promise.race([appended.opened, slow]);
      try {
        await commit(harness, testMessage("m2", { key: "k" }));
        expect(ids(await readAll(store.box(outbox)))).toEqual(["m2"]);
      } finally {
        go.open();
        await slow;
      }
      const rows = await readAll(store.box(outbox));
      expect(ids(rows)).toEqual(["m1", "m2"]);
      expect(rows[0]?.position).toBeLessThan(rows[1]?.position ?? 0);
    });

    fact("keeps boxes apart", async ({ store, contents }) => {
      await store.transaction(async (tx) => {
        await store.append(tx, outbox, [testMessage("m1")]);
        await store.append(tx, "inbox/other", [testMessage("m2")]);
      });
      expect((await contents(outbox)).pending).toEqual(["m1"]);
      expect((await contents("inbox/other")).pending).toEqual(["m2"]);
      await join(store.box(outbox), "relay-1");
      expect(await join(store.box("inbox/other"), "relay-2")).toHaveLength(64);
    });
  });
}
