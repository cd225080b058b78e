import { it } from "vitest";
import type { StoreFeatures, StoreHarness, StoreSuiteOptions } from "./store-harness.js";

type Proof<Tx> = (harness: StoreHarness<Tx>) => Promise<void>;

/**
 * Registers one fact, which runs on a fresh harness. A fact that needs an unclaimed feature is skipped, and says why.
 */
export interface StoreFact<Tx> {
  (name: string, prove: Proof<Tx>): void;
  (name: string, needs: keyof StoreFeatures, prove: Proof<Tx>): void;
}

/** For slow machines and cold databases; a fact itself takes milliseconds. */
const timeoutMs = 60_000;

export function storeFacts<Tx>(options: StoreSuiteOptions<Tx>): StoreFact<Tx> {
  return (name: string, ...rest: [Proof<Tx>] | [keyof StoreFeatures, Proof<Tx>]) => {
    const [needs, prove] = rest.length === 1 ? [undefined, rest[0]] : rest;
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
