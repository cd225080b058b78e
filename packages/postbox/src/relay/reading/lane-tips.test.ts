import { testMessage } from "@postbox/testkit";
import type { LaneRows, Row } from "postbox/store";
import { expect, it } from "vitest";
import { Window } from "../ordering/window.js";
import { LaneTips } from "./lane-tips.js";
import { Lanes } from "./lanes.js";

const never = new AbortController().signal;

const row = (lane: number, position: number): Row => ({
  lane,
  position,
  message: testMessage(`${lane}-${position}`, { key: `${lane}` }),
  attempts: 0,
  crashes: 0,
  waiting: false,
  held: false,
});

const found = (rows: readonly Row[], more: readonly number[] = [], drawn = 0): LaneRows => ({
  rows,
  more: new Set(more),
  drawn,
});

/** The tips of four lanes, of which at most 64 rows are read at once. */
function tipsOf(...numbers: readonly number[]) {
  const lanes = new Lanes(32);
  lanes.add(numbers);
  const window = new Window({ keepsOrder: true });
  const tips = new LaneTips({ lanes, window, most: 64, batchSize: 32 });
  return { lanes, window, tips };
}

it("reads each lane on from its last row, or from the last position drawn if it has no more", async () => {
  const { tips } = tipsOf(0, 1);
  tips.next();
  await tips.admit(found([row(0, 3), row(0, 7)], [0], 9), never);
  expect(tips.next().map(({ lane, after }) => [lane, after])).toEqual([
    [1, 9],
    [0, 7],
  ]);
});

it("doubles the limit of a lane that has more, and shares the room among many such lanes", async () => {
  const { tips } = tipsOf(0, 1, 2, 3);
  const limits = () => tips.next().map(({ limit }) => limit);
  expect(limits()).toEqual([8, 8, 8, 8]);
  await tips.admit(found([], [2]), never);
  expect(
    tips
      .next()
      .map(({ lane, limit }) => [lane, limit])
      .sort(),
  ).toEqual([
    [0, 8],
    [1, 8],
    [2, 16],
    [3, 8],
  ]);
  for (let read = 0; read < 3; read++) {
    tips.next();
    await tips.admit(found([], [0, 1, 2, 3]), never);
  }
  expect(limits().reduce((sum, limit) => sum + limit, 0)).toBeLessThanOrEqual(64);
});

it("leaves out a lane with many buffered rows, and reports once that there is room again", () => {
  const { tips, window } = tipsOf(0, 1);
  const rows = Array.from({ length: 32 }, (_, n) => row(0, n + 1));
  window.endRead(window.beginRead(), rows);
  expect(tips.next().map(({ lane }) => lane)).toEqual([1]);
  expect(tips.hasRoomAgain()).toBe(false);
  window.take(20, Number.POSITIVE_INFINITY);
  expect([tips.hasRoomAgain(), tips.hasRoomAgain()]).toEqual([true, false]);
});

it("does not move the cursor of a lane that was lost and regained during the read", async () => {
  const { tips, lanes } = tipsOf(0, 1);
  tips.next();
  lanes.remove(1);
  lanes.add([1]);
  const { rows } = await tips.admit(found([row(0, 3), row(1, 4)], [], 5), never);
  expect(rows.map(({ lane }) => lane)).toEqual([0]);
  expect(lanes.all.map(({ lane, cursor }) => [lane, cursor])).toEqual([
    [0, 5],
    [1, 0],
  ]);
});
