import { type IsolationLevel, inboxOf } from "postbox";
import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { testMessage } from "../messages.js";
import { patiently } from "../patience.js";
import { settlesBefore } from "../settles-before.js";
import { ids, join, readAll } from "./box-access.js";
import { remember } from "./remembering.js";
import type { StoreFact } from "./store-facts.js";
import type { StoreHarness } from "./store-harness.js";

const levels: readonly IsolationLevel[] = ["read committed", "repeatable read", "serializable"];

/** `remember`: of all deliveries of one message to one consumer, exactly one commits an effect. */
export function inboxFacts<Tx>(fact: StoreFact<Tx>): void {
  const message = testMessage("m1");
  const handle = ({ store, effect }: StoreHarness<Tx>, name: string, isolation?: IsolationLevel) =>
    store.transaction(
      async (tx) => {
        const answer = await remember(store, tx, "billing", message);
        if (answer === "new") await effect(tx, name);
        return answer;
      },
      isolation === undefined ? {} : { isolation },
    );

  describe("remember", () => {
    fact("is new once, then a duplicate", async (harness) => {
      expect(await handle(harness, "a")).toBe("new");
      expect(await handle(harness, "b")).toBe("duplicate");
      expect(await harness.effects()).toEqual(["a"]);
    });

    fact("is a duplicate within the same transaction, too", async ({ store }) => {
      await store.transaction(async (tx) => {
        expect(await remember(store, tx, "billing", message)).toBe("new");
        expect(await remember(store, tx, "billing", message)).toBe("duplicate");
      });
    });

    fact("forgets ids that were rolled back", async (harness) => {
      const { store } = harness;
      const failing = store.transaction(async (tx) => {
        await remember(store, tx, "billing", message);
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect(await handle(harness, "a")).toBe("new");
    });

    fact("remembers for each consumer, and for each message", async ({ store }) => {
      await store.transaction(async (tx) => {
        expect(await remember(store, tx, "billing", message)).toBe("new");
        expect(await remember(store, tx, "shipping", message)).toBe("new");
        expect(await remember(store, tx, "billing", testMessage("m2"))).toBe("new");
        expect(await remember(store, tx, "billing", testMessage("M1"))).toBe("new");
      });
    });

    fact("has a box of its own for each of 600 consumers", async (harness) => {
      const { store } = harness;
      const names = Array.from({ length: 600 }, (_, n) => `consumer-${n}`);
      for (const name of names) await join(store.box(inboxOf(name)), `relay of ${name}`);
      const last = inboxOf("consumer-599");
      await store.transaction((tx) => store.append(tx, last, [message]));
      expect(ids(await readAll(store.box(last)))).toEqual([message.id]);
      expect(await readAll(store.box(inboxOf("consumer-598")))).toEqual([]);
      expect((await store.admin.list({ box: last })).messages).toHaveLength(1);
      expect((await store.admin.stats({ box: last })).lanes.owners).toEqual([
        { owner: "relay of consumer-599", lanes: 64, lives: true },
      ]);
    });

    fact("leaves the transaction of a duplicate usable", async (harness) => {
      const { store, effect, effects } = harness;
      await handle(harness, "a");
      await store.transaction(async (tx) => {
        expect(await remember(store, tx, "billing", message)).toBe("duplicate");
        await effect(tx, "b");
      });
      expect([...(await effects())].sort()).toEqual(["a", "b"]);
    });

    fact("is shared by all processes", async (harness) => {
      await handle(harness, "a");
      expect(await handle({ ...harness, store: harness.another() }, "b")).toBe("duplicate");
    });

    fact("accepts exactly one of ten concurrent calls", "concurrentTransactions", async (harness) => {
      const answers = await Promise.all(Array.from({ length: 10 }, (_, index) => handle(harness, `e${index}`)));
      expect(answers.filter((answer) => answer === "new")).toHaveLength(1);
      expect(await harness.effects()).toHaveLength(1);
    });

    for (const [ending, answer] of [
      ["commits", "duplicate"],
      ["rolls back", "new"],
    ] as const) {
      fact(`waits for the first, and is ${answer} when that ${ending}`, "concurrentTransactions", async (harness) => {
        const { store } = harness;
        const remembered = gate();
        const go = gate();
        const first = store.transaction(async (tx) => {
          await remember(store, tx, "billing", message);
          remembered.open();
          await go.opened;
          if (ending === "rolls back") throw new Error("no stock");
        });
        await Promise.race([remembered.opened, first]);
        const second = handle(harness, "b");
        const later = store.transaction((tx) => remember(store, tx, "billing", testMessage("later")));
        const early = await settlesBefore(second, later);
        go.open();
        await first.catch(() => {});
        expect(early).toBe(false);
        expect(await second).toBe(answer);
        expect(await harness.effects()).toEqual(answer === "new" ? ["b"] : []);
      });
    }

    fact("does not wait for other messages or consumers", "concurrentTransactions", async ({ store }) => {
      const remembered = gate();
      const go = gate();
      const first = store.transaction(async (tx) => {
        await remember(store, tx, "billing", message);
        remembered.open();
        await go.opened;
      });
      await Promise.race([remembered.opened, first]);
      const others = Promise.all([
        store.transaction((tx) => remember(store, tx, "billing", testMessage("m2"))),
        store.transaction((tx) => remember(store, tx, "shipping", message)),
      ]);
      try {
        expect(await patiently(others, () => "the others")).toEqual(["new", "new"]);
      } finally {
        go.open();
        await first;
      }
    });

    fact("breaks a deadlock by rolling one back", "concurrentTransactions", async (harness) => {
      const { store, effect, effects } = harness;
      const both = [gate(), gate()];
      const handleBoth = (name: string, order: readonly string[], own?: number) =>
        store.transaction(async (tx) => {
          for (const [index, id] of order.entries()) {
            if ((await remember(store, tx, "billing", testMessage(id))) === "duplicate") return;
            if (index > 0 || own === undefined) continue;
            both[own]?.open();
            await both[1 - own]?.opened;
          }
          await effect(tx, name);
        });
      const outcomes = await Promise.allSettled([handleBoth("a", ["x", "y"], 0), handleBoth("b", ["y", "x"], 1)]);
      expect(outcomes.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
      const victim = outcomes[0]?.status === "rejected" ? "a" : "b";
      await handleBoth(victim, ["x", "y"]);
      expect(await effects()).toEqual([victim === "a" ? "b" : "a"]);
    });

    for (const isolation of levels) {
      fact(
        `commits one effect at ${isolation}, where a lost race may be run again`,
        "isolationLevels",
        async (harness) => {
          const untilDone = async (name: string, left = 10): Promise<string> => {
            try {
              return await handle(harness, name, isolation);
            } catch (error) {
              if (left === 0) throw error;
              return untilDone(name, left - 1);
            }
          };
          const answers = await Promise.all(Array.from({ length: 5 }, (_, index) => untilDone(`e${index}`)));
          expect(answers.filter((answer) => answer === "new")).toHaveLength(1);
          expect(await harness.effects()).toHaveLength(1);
        },
      );
    }
  });
}
