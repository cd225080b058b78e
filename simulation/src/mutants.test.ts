import { expect, it } from "vitest";
import { mutants } from "./mutants.js";
import { checkMutant, tryMutant } from "./try-mutants.js";

it.each(mutants)("fits the code: $guard", (mutant) => checkMutant(mutant));

// All mutants take minutes. These few show that the simulation can fail.
const quick = ["a row whose key is held", "a message is acked after", "the relay looks for late commits"];

it.each(quick)("the simulation finds out when %s … is missing", { timeout: 600_000 }, async (start) => {
  const mutant = mutants.find(({ guard }) => guard.startsWith(start));
  if (mutant === undefined) throw new Error(`there is no such guard: ${start}`);
  expect((await tryMutant(mutant, 300)).by).toBeLessThanOrEqual(300);
});
