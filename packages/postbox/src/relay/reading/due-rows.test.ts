import { testMessage } from "@postbox/testkit";
import { expect, it } from "vitest";
import type { Box, Row } from "../../store.js";
import { Window } from "../ordering/window.js";
import { readDue } from "./due-rows.js";
import { Lanes } from "./lanes.js";

const lane = 7;

/** The due rows of one key, as a box with only that key returns them. */
function hotKey(count: number) {
  const row = (position: number): Row => {
    const message = testMessage(`${position}`, { key: "hot" });
    return { lane, position, message, attempts: 0, crashes: 0, waiting: true, held: false };
  };
  const left = Array.from({ length: count }, (_, index) => row(index + 1));
  const box: Pick<Box, "due"> = {
    due: async (lanes, { except = [] } = {}) =>
      except.includes("hot") ? [] : left.slice(0, lanes.find((asked) => asked.lane === lane)?.limit),
  };
  return { box, left };
}

it("reads more and more of a hot key, though reads in between leave that key out", async () => {
  const { box, left } = hotKey(1000);
  const lanes = new Lanes(500);
  lanes.add(Array.from({ length: 64 }, (_, number) => number));
  const window = new Window({ keepsOrder: true });
  const read = async () => {
    const began = window.beginRead();
    const rows = await readDue(box, lanes, window, { batchSize: 500, maxBytes: 1_000_000 });
    window.endRead(began, rows);
    return rows.length;
  };
  const brought: number[] = [];
  while (left.length > 0) {
    brought.push(await read());
    // The engine reads again at once, and finds the window full of that key.
    expect(await read()).toBe(0);
    for (const row of window.take(500, 1_000_000)) {
      window.sent(row);
      window.settled(row, "sent");
      left.shift();
    }
  }
  expect(brought.slice(0, 4)).toEqual([8, 16, 32, 64]);
  // Nothing is due any more, so the limit is small again.
  await read();
  expect(lanes.all[lane]?.dueLimit).toBe(8);
});
