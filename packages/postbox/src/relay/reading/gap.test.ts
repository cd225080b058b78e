import { expect, it } from "vitest";
import type { Row } from "../../store.js";
import { WriterRanges } from "../../stores/writer-ranges.js";
import { Gap } from "./gap.js";

const rows = (...positions: number[]) => positions.map((position) => ({ position }) as Row);
const open = (...numbers: number[]) => new WriterRanges(numbers.map((from) => ({ from, to: from + 1 })));

it("lets all rows pass while no writer is in progress", () => {
  expect(new Gap().pass(rows(3, 7, 9), 0, 9, open())).toEqual({ count: 3 });
});

it("stops at a missing position until it appears", () => {
  const gap = new Gap();
  expect(gap.pass(rows(1, 2, 4, 5), 0, 5, open(7))).toEqual({ count: 2, blocked: "newly" });
  expect(gap.pass(rows(4, 5, 6), 2, 6, open(7, 8))).toEqual({ count: 0, blocked: "still" });
  expect(gap.pass(rows(3, 4, 5), 2, 5, open(8))).toEqual({ count: 3 });
});

it("waits for writers that were in progress when a later position was found, and no others", () => {
  const gap = new Gap();
  gap.pass(rows(4), 2, 4, open(7, 8));
  expect(gap.pass(rows(4, 6), 2, 6, open(8, 9))).toEqual({ count: 0, blocked: "still" });
  // Positions that are missing up to 4 were rolled back. About 5 nothing is known yet.
  expect(gap.pass(rows(4, 6), 2, 6, open(9))).toEqual({ count: 1, blocked: "newly" });
  expect(gap.pass(rows(6), 4, 6, open())).toEqual({ count: 1 });
});

it("reports another gap when the first one was filled", () => {
  const gap = new Gap();
  expect(gap.pass(rows(2), 0, 2, open(7, 8))).toEqual({ count: 0, blocked: "newly" });
  expect(gap.pass(rows(1, 2, 4), 0, 4, open(8))).toEqual({ count: 2, blocked: "newly" });
});

it("does not stop at a position that it has passed", () => {
  const gap = new Gap();
  expect(gap.pass(rows(1, 2, 3), 0, 3, open(7))).toEqual({ count: 3 });
  expect(gap.pass(rows(3), 1, 3, open(7))).toEqual({ count: 1 });
});
