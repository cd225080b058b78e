import { createOutbox, currentTransaction, defineEvent, type StandardSchema } from "postbox";
import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { testMessage } from "../messages.js";
import { strangeErrors } from "../strange-errors.js";
import { outbox } from "./box-access.js";
import { remember } from "./remembering.js";
import type { StoreFact } from "./store-facts.js";
import type { StoreSuiteOptions } from "./store-harness.js";

const tick = () => new Promise<void>((resolve) => setTimeout(resolve, 1));

/** A schema whose validation takes a while. */
const schema: StandardSchema<{ readonly refused?: boolean }> = {
  "~standard": {
    version: 1,
    vendor: "suite",
    validate: async (value) => {
      await tick();
      const { refused } = value as { readonly refused?: boolean };
      return refused ? { issues: [{ message: "refused" }] } : { value: value as { readonly refused?: boolean } };
    },
  },
};
const Checked = defineEvent({ type: "shop.Checked", schema });

/** `transaction()`, `current()`, and which handles are rejected. */
export function transactionFacts<Tx>(fact: StoreFact<Tx>, { create }: StoreSuiteOptions<Tx>): void {
  describe("transaction", () => {
    fact("rejects an append that comes after its rollback", async (harness) => {
      const { store } = harness;
      let late: Promise<void> = Promise.resolve();
      const refused = store.transaction(async (tx) => {
        late = new Promise((resolve) => setImmediate(resolve)).then(() =>
          store.append(tx, "outbox", [testMessage("ghost")]),
        );
        late.catch(() => {});
        throw new Error("refused");
      });
      await expect(refused).rejects.toThrow("refused");
      await expect(late).rejects.toMatchObject({ code: "not-a-transaction" });
      expect((await harness.contents("outbox")).pending).toEqual([]);
    });

    fact("commits and returns what its function returned", async ({ store, effect, effects }) => {
      const result = await store.transaction(async (tx) => {
        await effect(tx, "done");
        return 42;
      });
      expect(result).toBe(42);
      expect(await effects()).toEqual(["done"]);
    });

    fact("rolls back and rejects with the error that its function threw", async ({ store, effect, effects }) => {
      const error = new Error("no stock");
      const failing = store.transaction(async (tx) => {
        await effect(tx, "done");
        throw error;
      });
      await expect(failing).rejects.toBe(error);
      expect(await effects()).toEqual([]);
    });

    fact("rolls back if a publish is still in progress at its end", async ({ store, effect, effects, contents }) => {
      const box = createOutbox(store, { source: "/shop" });
      const ways: Record<string, (tx: Tx) => Promise<unknown>> = {
        publish: (tx) => box.in(tx).publish(Checked, {}),
        publishAll: (tx) => box.in(tx).publishAll([Checked.message({}), Checked.message({})]),
        send: (tx) => box.in(tx).send({ type: "shop.Sent", topic: "shop", data: new Uint8Array() }),
        "publish without a handle": () => box.publish(Checked, {}),
        "a publish that fails": (tx) => box.in(tx).publish(Checked, { refused: true }),
      };
      for (const [way, publish] of Object.entries(ways)) {
        const forgetful = store.transaction(async (tx) => {
          await effect(tx, way);
          void publish(tx).catch(() => {});
        });
        await expect(forgetful, way).rejects.toMatchObject({ code: "not-awaited" });
      }
      const failing = store.transaction(async (tx) => {
        void box.in(tx).publish(Checked, {});
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect(await effects()).toEqual([]);
      expect((await contents(outbox)).pending).toEqual([]);
      await store.transaction((tx) => box.in(tx).publish(Checked, {}));
      expect((await contents(outbox)).pending).toHaveLength(1);
    });

    fact("rolls back whatever is thrown, and leaves nothing open", async (harness) => {
      const { store, effect, effects } = harness;
      for (const [what, thrown] of Object.entries(strangeErrors())) {
        const failing = store.transaction(async (tx) => {
          await effect(tx, what);
          throw thrown;
        });
        // Without a matcher, which would inspect what was thrown.
        expect(
          await failing.then(
            () => "resolved",
            () => "rejected",
          ),
          what,
        ).toBe("rejected");
        await store.transaction(async () => {});
      }
      expect(await effects()).toEqual([]);
    });

    fact("works again after a rollback", async ({ store, effect, effects }) => {
      for (const name of ["a", "b", "c"]) {
        await store.transaction(() => Promise.reject(new Error("no stock"))).catch(() => {});
        await store.transaction((tx) => effect(tx, name));
      }
      expect([...(await effects())].sort()).toEqual(["a", "b", "c"]);
    });

    fact("rejects if the database rolled back instead of committing", "abortsOnError", async (harness) => {
      const { store, effect, effects, contents } = harness;
      const broken = store.transaction(async (tx) => {
        await effect(tx, "done");
        await store.append(tx, outbox, [testMessage("m1")]);
        if (harness.breakTransaction === undefined) throw new Error("abortsOnError needs breakTransaction()");
        await harness.breakTransaction(tx);
      });
      await expect(broken).rejects.toMatchObject({ code: "commit-rolled-back" });
      expect(await effects()).toEqual([]);
      expect((await contents(outbox)).pending).toEqual([]);
    });

    fact("reports that an error was swallowed", "abortsOnError", async (harness) => {
      const { store, effect, effects } = harness;
      const goesOn = store.transaction(async (tx) => {
        await harness.breakTransaction?.(tx);
        await effect(tx, "after it");
      });
      const { code } = await goesOn.catch((error) => error);
      expect(["commit-rolled-back", "not-a-transaction"]).toContain(code);
      expect(await effects()).toEqual([]);
    });
  });

  describe("current", () => {
    fact("is the surrounding transaction, through awaits and timers", async ({ store, effect, effects }) => {
      const deepInUserCode = async (name: string) => {
        await tick();
        await effect(currentTransaction(store), name);
      };
      await store.transaction(async (tx) => {
        expect(store.current()).toBe(tx);
        await deepInUserCode("a");
        await Promise.all([Promise.resolve().then(() => deepInUserCode("b"))]);
        expect(store.current()).toBe(tx);
      });
      expect([...(await effects())].sort()).toEqual(["a", "b"]);
    });

    fact("is undefined before and after, even after a failure", async ({ store }) => {
      expect(store.current()).toBeUndefined();
      await store.transaction(async () => {});
      expect(store.current()).toBeUndefined();
      await store.transaction(() => Promise.reject(new Error("no stock"))).catch(() => {});
      expect(store.current()).toBeUndefined();
      expect(() => currentTransaction(store)).toThrow("transaction-missing");
    });

    fact("is undefined in work that outlives the transaction", async ({ store }) => {
      const ended = gate();
      let later: Promise<unknown> = Promise.resolve();
      await store.transaction(async () => {
        later = ended.opened.then(() => store.current());
      });
      ended.open();
      expect(await later).toBeUndefined();
    });

    fact("is separate in concurrent transactions", async ({ store, effect, effects }) => {
      const names = ["a", "b", "c", "d"];
      await Promise.allSettled(
        names.map((name) =>
          store.transaction(async (tx) => {
            await tick();
            expect(store.current()).toBe(tx);
            await effect(currentTransaction(store), name);
            if (name === "c") throw new Error("no stock");
          }),
        ),
      );
      expect([...(await effects())].sort()).toEqual(["a", "b", "d"]);
    });

    fact("belongs to its store alone", async ({ store, another }) => {
      const other = another();
      await store.transaction(async () => {
        expect(other.current()).toBeUndefined();
      });
    });
  });

  describe("a handle is rejected", () => {
    fact("once its transaction has committed or rolled back", async ({ store, contents }) => {
      const ended: Tx[] = [];
      await store.transaction(async (tx) => void ended.push(tx));
      await store.transaction((tx) => Promise.reject(ended.push(tx))).catch(() => {});
      for (const tx of ended) {
        const refused = { code: "not-a-transaction" };
        await expect(store.append(tx, outbox, [testMessage("m1")])).rejects.toMatchObject(refused);
        await expect(remember(store, tx, "billing", testMessage("m1"))).rejects.toMatchObject(refused);
      }
      expect(ended).toHaveLength(2);
      expect((await contents(outbox)).pending).toEqual([]);
    });

    fact("when it is not a transaction", async (harness) => {
      const { store, contents } = harness;
      const impostors = [undefined, null, 42, "tx", {}, () => {}, store, ...(harness.impostors?.() ?? [])];
      for (const impostor of impostors) {
        const refused = { code: "not-a-transaction" };
        await expect(store.append(impostor as Tx, outbox, [testMessage("m1")])).rejects.toMatchObject(refused);
        await expect(remember(store, impostor as Tx, "billing", testMessage("m1"))).rejects.toMatchObject(refused);
      }
      expect((await contents(outbox)).pending).toEqual([]);
    });

    fact("when it is of another database", "foreignTransactions", async ({ store, contents }) => {
      const foreign = await create();
      try {
        await foreign.store.transaction(async (tx) => {
          const refused = { code: "not-a-transaction" };
          await expect(store.append(tx, outbox, [testMessage("m1")])).rejects.toMatchObject(refused);
          await expect(remember(store, tx, "billing", testMessage("m1"))).rejects.toMatchObject(refused);
        });
        expect((await foreign.contents(outbox)).pending).toEqual([]);
      } finally {
        await foreign.close();
      }
      expect((await contents(outbox)).pending).toEqual([]);
    });
  });
}
