import type { Store } from "postbox";
import { describe, expect } from "vitest";
import { testMessage } from "../messages.js";
import { outbox } from "./box-access.js";
import type { StoreFact } from "./store-facts.js";

/** What runs after the COMMIT of a transaction that the store has opened, such as waking relays. */
export function afterCommitFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("a task after the commit", () => {
    fact("runs once the transaction has committed, and not before", async ({ store }) => {
      const seen: string[] = [];
      await store.transaction(async (tx) => {
        await store.append(tx, outbox, [testMessage("m1")]);
        expect(afterCommit(store, tx, () => seen.push("committed"))).toBe(true);
        await store.append(tx, outbox, [testMessage("m2")]);
        seen.push("still open");
      });
      expect(seen).toEqual(["still open", "committed"]);
    });

    fact("does not run if the transaction rolls back", async ({ store }) => {
      const seen: string[] = [];
      const failing = store.transaction(async (tx) => {
        await store.append(tx, outbox, [testMessage("m1")]);
        afterCommit(store, tx, () => seen.push("committed"));
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      // A task for the first transaction would have run before the end of this one.
      await store.transaction(async (tx) => void afterCommit(store, tx, () => seen.push("the next")));
      expect(seen).toEqual(["the next"]);
    });
  });
}

function afterCommit<Tx>(store: Store<Tx>, tx: Tx, task: () => void): boolean {
  if (store.afterCommit === undefined) throw new Error(`${store.name} opens transactions, and has no afterCommit`);
  return store.afterCommit(tx, task);
}
