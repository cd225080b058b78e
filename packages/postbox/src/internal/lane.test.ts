import { expect, it } from "vitest";
import { laneOf } from "./lane.js";

// Must never change: the SQL function has the same vectors, and the rows of a key must stay in their lane.
it.each([
  ["", 35],
  ["a", 10],
  ["order-1", 11],
  ["größe", 19],
  ["💌", 63],
])("the lane of %j is %i", (key, lane) => {
  expect(laneOf(key)).toBe(lane);
});
