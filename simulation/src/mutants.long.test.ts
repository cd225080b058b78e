import { expect, it } from "vitest";
import { mutants } from "./mutants.js";
import { tryMutant } from "./try-mutants.js";

it.each(mutants)("the simulation finds out without: $guard", async (mutant) => {
  const { by, rule } = await tryMutant(mutant, 2000);
  console.log(`${by}: ${mutant.guard} (${rule})`);
  expect(by).toBeDefined();
});
