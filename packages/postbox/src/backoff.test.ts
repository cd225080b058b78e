import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { constant, exponential, reliable } from "./backoff.js";

describe("exponential", () => {
  it("grows, and never exceeds its cap, including jitter", () => {
    const backoff = exponential({ initialMs: 100, maxMs: 1000 });
    expect([1, 2, 3, 4, 5, 50].map((attempt) => backoff(attempt, () => 0))).toEqual([100, 200, 400, 800, 1000, 1000]);
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2000 }),
        fc.double({ min: 0, max: 0.999, noNaN: true }),
        (attempt, chance) => {
          const ms = backoff(attempt, () => chance);
          expect(ms).toBeGreaterThanOrEqual(50);
          expect(ms).toBeLessThanOrEqual(1000);
        },
      ),
    );
  });

  it.each([{ initialMs: 0 }, { initialMs: 10, maxMs: 5 }, { factor: 0.5 }, { jitter: 2 }])("refuses %j", (options) => {
    expect(() => exponential(options)).toThrow(expect.objectContaining({ code: "option-invalid" }));
  });
});

it("returns the same delay every time", () => {
  expect(constant(7)(99, Math.random)).toBe(7);
  expect(() => constant(-1)).toThrow(expect.objectContaining({ code: "option-invalid" }));
});

it.each([
  [0, 0, 0],
  [1500, 1500, 0],
  [1e300, 0x7fffffff, 0],
  [-1, 1000, 1],
  [Number.POSITIVE_INFINITY, 1000, 1],
  ["5" as never, 1000, 1],
])("reliable makes of %d a delay of %d ms", (answer, expected, told) => {
  const reports: unknown[] = [];
  expect(
    reliable(
      () => answer,
      (error) => reports.push(error),
    )(1, Math.random),
  ).toBe(expected);
  expect(reports).toHaveLength(told);
});
