import type { Message } from "postbox";
import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { testMessages } from "../messages.js";
import { settlesBefore } from "../settles-before.js";
import { commit, ids, outbox, readAll } from "./box-access.js";
import type { StoreFact } from "./store-facts.js";
import type { StoreHarness } from "./store-harness.js";

const strict = { strictKeyOrder: true };

/**
 * `strictKeyOrder`: transactions that append to the same key wait for each other, so positions follow their commits.
 */
export function strictOrderFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("append with strictKeyOrder", () => {
    for (const count of [1, 3]) {
      const first = () => testMessages("first", count, { key: "k" });
      const second = () => testMessages("second", count, { key: "k" });
      const named = (...names: readonly string[]) =>
        names.flatMap((name) => testMessages(name, count).map(({ id }) => id));

      fact(
        `of ${count} waits for another append to the key, and is placed after it`,
        "lateCommits",
        async (harness) => {
          const { store } = harness;
          await whileOpen(harness, first(), async (end) => {
            const waiting = store.transaction((tx) => store.append(tx, outbox, second(), strict));
            // Appended meanwhile: the waiting append must not have its position yet.
            const others = testMessages("other", count, { key: "another key" });
            const later = store.transaction((tx) => store.append(tx, outbox, others, strict));
            expect(await settlesBefore(waiting, later)).toBe(false);
            await commit(harness, ...testMessages("lax", count, { key: "k" }));
            await end();
            await waiting;
          });
          expect(ids(await readAll(store.box(outbox)))).toEqual(named("first", "other", "lax", "second"));
        },
      );

      fact(`of ${count} continues when the other has rolled back`, "concurrentTransactions", async (harness) => {
        const { store } = harness;
        await whileOpen(harness, first(), async (end) => {
          const waiting = store.transaction((tx) => store.append(tx, outbox, second(), strict));
          const others = testMessages("other", count, { key: "another key" });
          const later = store.transaction((tx) => store.append(tx, outbox, others, strict));
          expect(await settlesBefore(waiting, later)).toBe(false);
          await expect(end(new Error("no stock"))).rejects.toThrow("no stock");
          await waiting;
        });
        expect(ids(await readAll(store.box(outbox)))).toEqual(named("other", "second"));
      });
    }

    fact("waits for no other box, nor for its own transaction", "concurrentTransactions", async (harness) => {
      const { store } = harness;
      await whileOpen(harness, testMessages("first", 1, { key: "k" }), () =>
        store.transaction(async (tx) => {
          await store.append(tx, "inbox/other", testMessages("inbox/other", 1, { key: "k" }), strict);
          await store.append(tx, "inbox/other", testMessages("again", 2, { key: "k" }), strict);
          await store.append(tx, outbox, testMessages("keyless", 1), strict);
          await store.append(tx, outbox, testMessages("keyless-too", 2), strict);
        }),
      );
    });

    fact("takes the keys of one call in one order", "concurrentTransactions", async (harness) => {
      const keys = ["a", "b", "c", "d"];
      const each = Array.from({ length: 20 }, (_, index) =>
        harness.store.transaction((tx) => {
          const messages = keys.flatMap((key) => testMessages(`${index}-${key}`, 1, { key }));
          return harness.store.append(tx, outbox, index % 2 === 0 ? messages : messages.reverse(), strict);
        }),
      );
      await Promise.all(each);
      expect((await harness.contents(outbox)).pending).toHaveLength(80);
    });

    fact("breaks a deadlock by rolling one back", "concurrentTransactions", async (harness) => {
      const { store } = harness;
      const both = [gate(), gate()];
      const appendBoth = (own: number, keys: readonly string[]) =>
        store.transaction(async (tx) => {
          for (const [index, key] of keys.entries()) {
            await store.append(tx, outbox, testMessages(`${own}-${key}`, 1, { key }), strict);
            if (index === 0) both[own]?.open();
            await both[1 - own]?.opened;
          }
        });
      const outcomes = await Promise.allSettled([appendBoth(0, ["x", "y"]), appendBoth(1, ["y", "x"])]);
      expect(outcomes.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
      expect((await harness.contents(outbox)).pending).toHaveLength(2);
    });
  });
}

/** Runs `work` while a transaction is open that has appended. `end` ends it; with an error, it rolls back. */
async function whileOpen<Tx>(
  { store }: StoreHarness<Tx>,
  messages: readonly Message[],
  work: (end: (error?: Error) => Promise<void>) => Promise<void>,
): Promise<void> {
  const [appended, go] = [gate(), gate()];
  let failure: Error | undefined;
  const open = store.transaction(async (tx) => {
    await store.append(tx, outbox, messages, strict);
    appended.open();
    await go.opened;
    if (failure !== undefined) throw failure;
  });
  const end = (error?: Error) => {
    failure ??= error;
    go.open();
    return open;
  };
  await Promise.race([appended.opened, open]);
  try {
    await work(end);
  } finally {
    // A fact that fails must leave no transaction open.
    await Promise.allSettled([end()]);
  }
}
