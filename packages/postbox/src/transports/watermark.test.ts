import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { createWatermark } from "./watermark.js";

describe("a watermark", () => {
  it("never passes an offset that is not finished", () => {
    const watermark = createWatermark(10);
    for (const offset of [10, 11, 12, 13]) watermark.start(offset);
    watermark.finish(13);
    watermark.finish(11);
    expect(watermark.at).toBe(10);
    watermark.finish(10);
    expect(watermark.at).toBe(12);
    watermark.finish(12);
    expect([watermark.at, watermark.size]).toEqual([14, 0]);
  });

  it("passes gaps, which a log has after compaction, with the offset behind them", () => {
    const watermark = createWatermark(0);
    for (const offset of [3, 7, 20]) watermark.start(offset);
    watermark.finish(7);
    expect(watermark.at).toBe(0);
    watermark.finish(3);
    expect(watermark.at).toBe(8);
    watermark.finish(20);
    expect(watermark.at).toBe(21);
  });

  it("ignores what was never started, and what is finished already", () => {
    const watermark = createWatermark(5);
    watermark.finish(5);
    watermark.start(6);
    for (const offset of [4, 5, 7]) watermark.finish(offset);
    expect(watermark.at).toBe(5);
    watermark.finish(6);
    watermark.finish(6);
    expect(watermark.at).toBe(7);
  });

  it("refuses offsets that are started out of order", () => {
    const watermark = createWatermark(5);
    expect(() => watermark.start(4)).toThrow(RangeError);
    watermark.start(8);
    expect(() => watermark.start(8)).toThrow("start offsets in order");
    watermark.finish(8);
    expect(() => watermark.start(8)).toThrow(RangeError);
  });

  it("keeps only what is above it, however many pass", () => {
    const watermark = createWatermark(0);
    for (let offset = 0; offset < 100_000; offset++) {
      watermark.start(offset);
      if (offset >= 10) watermark.finish(offset - 10);
    }
    expect([watermark.at, watermark.size]).toEqual([99_990, 10]);
  });

  it("agrees with a model, for any offsets finished in any order", () => {
    const steps = fc.array(
      fc.oneof(fc.record({ start: fc.integer({ min: 1, max: 3 }) }), fc.record({ finish: fc.nat({ max: 1_000_000 }) })),
      { maxLength: 400 },
    );
    fc.assert(
      fc.property(steps, fc.integer({ min: 0, max: 1000 }), (plan, from) => {
        const watermark = createWatermark(from);
        const [started, open] = [[] as number[], new Set<number>()];
        for (const step of plan) {
          if ("start" in step) {
            const offset = (started.at(-1) ?? from - 1) + step.start;
            watermark.start(offset);
            started.push(offset);
            open.add(offset);
          } else {
            const offset = [...open][step.finish % Math.max(1, open.size)];
            if (offset === undefined) continue;
            watermark.finish(offset);
            open.delete(offset);
          }
          const firstOpen = started.findIndex((offset) => open.has(offset));
          const done = firstOpen === -1 ? started : started.slice(0, firstOpen);
          expect(watermark.at).toBe((done.at(-1) ?? from - 1) + 1);
          expect(watermark.size).toBe(started.length - done.length);
        }
      }),
      { numRuns: 300 },
    );
  });
});
