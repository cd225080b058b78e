import { expect, it } from "vitest";
import { emptyTally, merge, runSeeds, unmet } from "./run-seeds.js";

const total = emptyTally();

for (let from = 1; from < 2000; from += 250) {
  it(`seeds ${from} to ${from + 249} break no rule`, { timeout: 600_000 }, async () => {
    const tally = await runSeeds(Array.from({ length: 250 }, (_, index) => from + index));
    merge(total, tally);
    expect(tally.broken).toEqual([]);
  });
}

it("and they meet every situation and reach every failpoint", () => {
  expect(unmet(total)).toEqual([]);
});
