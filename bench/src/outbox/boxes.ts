import type { Run } from "../part.js";
import { type Box, createBox } from "./box.js";
import { drainByHand } from "./by-hand.js";
import { fillAndDrain } from "./drain-box.js";

/** The boxes of a run: benchmarks that name the same one share its tables, so that a million rows are made once. */
export type BoxName = "ours" | "bare" | "million" | "large" | "haystack";

const warmUpRows = 20_000;

/** A box of this run, created on first use. Creating "ours" or "bare" also runs its code until the compiler is done. */
export function boxOf(run: Run, name: BoxName): Promise<Box> {
  return run.once(`box ${name}`, async () => {
    const box = await createBox(run.database, `postbox_${name}`);
    if (name === "ours") await fillAndDrain(box, warmUpRows);
    if (name === "bare") {
      await box.fill(warmUpRows);
      await drainByHand(box, warmUpRows);
    }
    return box;
  });
}
