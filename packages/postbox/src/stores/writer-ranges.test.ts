import fc from "fast-check";
import { expect, it } from "vitest";
import { type WriterRange, WriterRanges } from "./writer-ranges.js";

const numbers = fc.uniqueArray(fc.integer({ min: 0, max: 30 }));

/** The numbers as ranges: as few as possible, or one for each. */
function rangesOf(given: readonly number[], joined: boolean): WriterRanges {
  const ranges: { from: number; to: number }[] = [];
  for (const number of [...given].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (joined && last?.to === number) last.to++;
    else ranges.push({ from: number, to: number + 1 });
  }
  return new WriterRanges(ranges);
}

function numbersIn(ranges: readonly WriterRange[]): number[] {
  return ranges.flatMap(({ from, to }) => Array.from({ length: to - from }, (_, index) => from + index));
}

it("subtracts ranges as sets subtract their numbers, in ascending order", () => {
  fc.assert(
    fc.property(numbers, numbers, fc.boolean(), fc.boolean(), (a, b, joinA, joinB) => {
      const left = rangesOf(a, joinA).without(rangesOf(b, joinB));
      expect(numbersIn(left.ranges)).toEqual(a.filter((number) => !b.includes(number)).sort((x, y) => x - y));
      expect(left.none).toBe(left.ranges.length === 0);
    }),
  );
});
