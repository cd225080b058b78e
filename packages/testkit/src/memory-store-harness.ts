import { createHash } from "node:crypto";
import { inboxOf } from "postbox";
import { type MemoryDatabaseOptions, type MemoryTransaction, memoryDatabase, memoryStore } from "postbox/memory";
import type { StoreFeatures, StoreHarness } from "./store-suite/store-harness.js";

/** What the memory store claims in its suites. */
export const memoryStoreFeatures: StoreFeatures = {
  concurrentTransactions: true,
  lateCommits: true,
  migrations: false,
  isolationLevels: true,
  abortsOnError: false,
  foreignTransactions: true,
  processes: true,
};

/**
 * A memory store for `storeSuite`.
 *
 * @example
 * ```ts
 * storeSuite({ name: "memory", features: memoryStoreFeatures, create: memoryStoreHarness });
 * ```
 */
export async function memoryStoreHarness(
  options: MemoryDatabaseOptions = {},
): Promise<StoreHarness<MemoryTransaction>> {
  const database = memoryDatabase(options);
  const effects: string[] = [];
  let aheadMs = 0;
  await memoryStore({ database }).box(inboxOf("other")).release("nobody");
  return {
    store: memoryStore({ database }),
    another: () => memoryStore({ database }),
    effect: async (tx, name) => tx.defer(() => effects.push(name)),
    effects: async () => [...effects],
    async advance(ms) {
      aheadMs += ms;
      database.advance(ms);
    },
    now: () => Date.now() + aheadMs,
    async process() {
      const store = memoryStore({ database });
      return { store, kill: async () => store.crash() };
    },
    impostors: () => [database],
    async contents(box) {
      const { pending, wait, holds, scheduled, parked, done } = database.contents(box);
      return {
        pending: pending.map(({ id }) => id),
        wait: wait.map(({ id }) => id),
        holds,
        scheduled: scheduled.map(({ id }) => id),
        parked: parked.map(({ message, error }) => ({ id: message.id, error })),
        done: done.map(({ id }) => id),
      };
    },
    fingerprint: async () => createHash("sha256").update(database.dump()).digest("hex"),
    async close() {},
  };
}
