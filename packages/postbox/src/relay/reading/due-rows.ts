import type { Box, Row } from "../../store.js";
import type { Window } from "../ordering/window.js";
import type { Lanes } from "./lanes.js";

/** Reads the rows of these lanes that wait and are due. Rows are found again until their outcome is stored. */
export async function readDue(
  box: Pick<Box, "due">,
  lanes: Lanes,
  window: Window,
  limits: { readonly batchSize: number; readonly maxBytes: number },
): Promise<readonly Row[]> {
  const asked = lanes.all;
  // Excludes keys of which the window has rows: those come first anyway, and reading the key again with every row that
  // leaves would cost quadratic time.
  const known = window.waitingUnder();
  const rows = await box.due(
    asked.map(({ lane, dueLimit }) => ({ lane, limit: dueLimit })),
    { maxBytes: limits.maxBytes, except: [...known.keys()] },
  );
  const counts = new Map<number, number>();
  for (const { lane } of rows) counts.set(lane, (counts.get(lane) ?? 0) + 1);
  const excluded = new Set(known.values());
  for (const state of asked) {
    const isFull = (counts.get(state.lane) ?? 0) >= state.dueLimit;
    if (isFull) state.dueLimit = Math.min(2 * state.dueLimit, limits.batchSize);
    // A read without the lane's longest queue says nothing about its length: a hot key would never get more per read.
    else if (!excluded.has(state.lane)) state.dueLimit = lanes.smallest;
  }
  return lanes.still(asked, rows);
}
