import { it } from "vitest";
import type { StoreFeatures, StoreHarness, StoreSuiteOptions } from "./store-harness.js";

/** Registers one fact, run on a fresh harness; one that needs an unclaimed feature is skipped, and says why. */
export type StoreFact<Tx> = (
  name: string,
  prove: (harness: StoreHarness<Tx>) => Promise<void>,
  needs?: keyof StoreFeatures,
) => void;

/** Slow machines and cold databases; a fact itself takes milliseconds. */
const timeoutMs = 20_000;

export function storeFacts<Tx>(options: StoreSuiteOptions<Tx>): StoreFact<Tx> {
  return (name, prove, needs) => {
    if (needs !== undefined && !options.features[needs]) {
      it.skip(`${name} (not claimed: ${needs})`);
      return;
    }
    it(name, { timeout: timeoutMs }, async () => {
      const harness = await options.create();
      try {
        await prove(harness);
      } finally {
        await harness.close();
      }
    });
  };
}
