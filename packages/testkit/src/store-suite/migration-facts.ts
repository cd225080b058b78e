import { describe, expect } from "vitest";
import { testMessage } from "../messages.js";
import { commit, outbox } from "./box-access.js";
import type { StoreFact } from "./store-facts.js";

/** `migrate()` may be called any number of times, by any number of processes. */
export function migrationFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("migrate", () => {
    fact("changes nothing the second time", "migrations", async (harness) => {
      await commit(harness, testMessage("m1"));
      await harness.store.migrate();
      expect((await harness.contents(outbox)).pending).toEqual(["m1"]);
      await commit(harness, testMessage("m2"));
      expect((await harness.contents(outbox)).pending).toEqual(["m1", "m2"]);
    });

    fact("is safe if five processes call it concurrently", "migrations", async (harness) => {
      await commit(harness, testMessage("m1"));
      await Promise.all(Array.from({ length: 5 }, () => harness.another().migrate()));
      await commit(harness, testMessage("m2"));
      expect((await harness.contents(outbox)).pending).toEqual(["m1", "m2"]);
    });
  });
}
