import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { OrderedRows } from "./ordered-rows.js";

const lowest = (model: ReadonlyMap<number, number>) =>
  [...model]
    .sort(([a], [b]) => a - b)
    .slice(0, 1)
    .map(([, value]) => value);

describe("OrderedRows", () => {
  it("is a sorted map, whatever is added and removed", () => {
    const step = fc.tuple(fc.boolean(), fc.nat(60));
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
        const rows = new OrderedRows<number>();
        const model = new Map<number, number>();
        for (const [index, [adds, position]] of steps.entries()) {
          if (adds) {
            rows.set(position, index);
            model.set(position, index);
          } else {
            expect(rows.delete(position)).toBe(model.get(position));
            model.delete(position);
          }
          expect(rows.first(1)).toEqual(lowest(model));
        }
        const expected = [...model].sort(([a], [b]) => a - b).map(([, value]) => value);
        expect(rows.first(Number.POSITIVE_INFINITY)).toEqual(expected);
        expect(rows.first(3)).toEqual(expected.slice(0, 3));
        expect(rows.size).toBe(model.size);
      }),
    );
  });

  it("drains 200,000 from the front without going over the removed ones again and again", () => {
    const rows = new OrderedRows<number>();
    for (let position = 1; position <= 200_000; position++) rows.set(position, position);
    const startedAt = performance.now();
    for (let position = 1; position <= 200_000; position += 100) {
      const batch = rows.first(100);
      for (const value of batch) rows.delete(value);
    }
    expect(rows.size).toBe(0);
    expect(performance.now() - startedAt).toBeLessThan(1500);
  });
});
