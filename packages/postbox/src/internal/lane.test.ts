import { expect, it } from "vitest";
import { laneOf } from "./lane.js";

// Fixed for ever: the same vectors hold in SQL, and rows of one key must never change lanes.
it.each([
  ["", 35],
  ["a", 10],
  ["order-1", 11],
  ["größe", 19],
  ["💌", 63],
])("the lane of %j is %i", (key, lane) => {
  expect(laneOf(key)).toBe(lane);
});
