import fc from "fast-check";
import { expect, it } from "vitest";
import type { WriterRange } from "../../store.js";
import { merged, within, without } from "./writer-ranges.js";

const numbers = fc.uniqueArray(fc.integer({ min: 0, max: 30 }));

/** As few ranges as these numbers need, or one for each. */
function rangesOf(given: readonly number[], joined: boolean): WriterRange[] {
  const ranges: { from: number; to: number }[] = [];
  for (const number of [...given].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (joined && last?.to === number) last.to++;
    else ranges.push({ from: number, to: number + 1 });
  }
  return ranges;
}

function numbersIn(ranges: readonly WriterRange[]): number[] {
  return ranges.flatMap(({ from, to }) => Array.from({ length: to - from }, (_, index) => from + index));
}

it("does with ranges what sets do with their numbers, in ascending order", () => {
  fc.assert(
    fc.property(numbers, numbers, fc.boolean(), fc.boolean(), (a, b, joinA, joinB) => {
      const [ranges, others] = [rangesOf(a, joinA), rangesOf(b, joinB)];
      const sorted = [...a].sort((x, y) => x - y);
      const left = without(ranges, others);
      const shared = within(ranges, others);
      expect(numbersIn(left)).toEqual(sorted.filter((number) => !b.includes(number)));
      expect(numbersIn(shared)).toEqual(sorted.filter((number) => b.includes(number)));
      expect(numbersIn(merged(left, shared))).toEqual(sorted);
    }),
  );
});

it("keeps what a range carries", () => {
  expect(without([{ from: 1, to: 9, since: 5 }], [{ from: 3, to: 4 }])).toEqual([
    { from: 1, to: 3, since: 5 },
    { from: 4, to: 9, since: 5 },
  ]);
});
