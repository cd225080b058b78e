import type { Run } from "../part.js";
import { type Box, createBox } from "./box.js";
import { drainByHand } from "./by-hand.js";
import { fillAndDrain } from "./drain-box.js";

/**
 * The boxes of a run. Benchmarks that use the same name share its tables, so that the million rows are created once.
 */
export type BoxName = "ours" | "bare" | "million" | "large" | "haystack";

/** The JIT compiler needs long: after 20,000 rows, each further drain of a relay is still faster than the last. */
const warmUps = 3;
const warmUpRows = 100_000;

/** Returns a box of this run; the first call creates it. Creating "ours" or "bare" also warms up that side's code. */
export function boxOf(run: Run, name: BoxName): Promise<Box> {
  return run.once(`box ${name}`, async () => {
    const box = await createBox(run.database, `postbox_${name}`);
    const rows = run.share(warmUpRows);
    for (let time = 0; time < warmUps; time++) {
      if (name === "ours") await fillAndDrain(box, rows);
      if (name === "bare") {
        await box.empty();
        await box.fill(rows);
        await drainByHand(box, rows);
      }
    }
    return box;
  });
}
