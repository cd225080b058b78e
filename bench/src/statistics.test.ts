import { expect, it } from "vitest";
import { verdict } from "./bar.js";
import { absolute, compared } from "./figure.js";
import { alternate } from "./rounds.js";
import { median, percentile, ratios, spread } from "./statistics.js";

it("takes the middle value, or the mean of the two in the middle", () => {
  expect(median([9, 1, 5])).toBe(5);
  expect(median([4, 1, 100, 2])).toBe(3);
  expect(median([7])).toBe(7);
  expect(() => median([])).toThrow("nothing was measured");
});

it("sorts numbers as numbers, and leaves the rounds as they are", () => {
  const rounds = [10, 9, 100];
  expect(spread(rounds)).toEqual([9, 100]);
  expect(rounds).toEqual([10, 9, 100]);
});

it("takes percentiles by the nearest rank", () => {
  const values = Array.from({ length: 200 }, (_, index) => 200 - index);
  expect(percentile(values, 50)).toBe(100);
  expect(percentile(values, 99)).toBe(198);
  expect(percentile(values, 100)).toBe(200);
  expect(percentile([3], 99)).toBe(3);
});

it("compares round with round, not median with median", () => {
  expect(ratios([10, 30], [20, 10])).toEqual([0.5, 3]);
  expect(() => ratios([1], [1, 2])).toThrow("1 rounds cannot be compared with 2");
  // A slow phase of the machine slows down both sides, so the ratio stays the same.
  expect(compared("a", "rows/s", [50, 5, 500], "bare", [100, 10, 1000])).toEqual({
    name: "a",
    value: 50,
    unit: "rows/s",
    ratio: 0.5,
    against: "bare",
    againstValue: 100,
    rounds: 3,
    spread: [0.5, 0.5],
  });
});

it("measures all sides in every round, each second one backwards", async () => {
  const calls: string[] = [];
  const side = (name: string) => async (round: number) => {
    calls.push(`${name}${round}`);
    return round;
  };
  const results = await alternate(3, { a: side("a"), b: side("b") });
  expect(calls).toEqual(["a0", "b0", "b1", "a1", "a2", "b2"]);
  expect(results).toEqual({ a: [0, 1, 2], b: [0, 1, 2] });
});

it("calls a bar met only when every round reached it", () => {
  const ratio = (...ours: number[]) =>
    compared(
      "a",
      "rows/s",
      ours,
      "bare",
      ours.map(() => 1),
    );
  expect(verdict(ratio(0.8, 0.7, 0.9), { atLeast: 0.7 })).toBe("met");
  expect(verdict(ratio(0.8, 0.69, 0.9), { atLeast: 0.7 })).toBe("just");
  expect(verdict(ratio(0.6, 0.69, 0.9), { atLeast: 0.7 })).toBe("missed");
  expect(verdict(ratio(1.4, 1.5, 1.6), { atMost: 1.5 })).toBe("just");
  expect(verdict(absolute("a", "ms", [11, 12, 10]), { atMost: 12 })).toBe("met");
  expect(verdict(absolute("a", "ms", [13, 14, 10]), { atMost: 12 })).toBe("missed");
});
