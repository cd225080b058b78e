import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";
import type { Box } from "./box.js";
import { boxOf } from "./boxes.js";
import { drainBox } from "./drain-box.js";

const name = "outbox.backlog";
const large = 1_000_000;
const small = 10_000;
/** Left out: taking the lease, and the first reads. */
const startUp = 2_000;
/** Left out of the small backlog: its last reads find less than they could take. */
const tail = 1_000;
const smallDrains = 8;

/** The steady rate in front of a million rows, against the same in front of ten thousand. */
export const backlog: Benchmark = {
  names: [name],
  async measure(run) {
    const million = await boxOf(run, "million");
    const ours = await boxOf(run, "ours");
    const steady = (small - startUp - tail) * smallDrains;
    const rates = await alternate(run.rounds, {
      large: async () => {
        await fillUpTo(million, run.share(large));
        await calm(million);
        return (await drainBox(million, startUp + steady)).sender.rate(startUp, startUp + steady);
      },
      small: async () => {
        let seconds = 0;
        for (let drains = 0; drains < smallDrains; drains++) {
          await ours.empty();
          await ours.fill(small);
          await calm(ours);
          const { sender } = await drainBox(ours, small);
          seconds += (small - startUp - tail) / sender.rate(startUp, small - tail);
        }
        return steady / seconds;
      },
    });
    return [compared(name, "rows/s", rates.large, "a backlog of 10,000", rates.small)];
  },
};

/** Else the server would still be busy with writing a million rows, and not with ten thousand. */
async function calm({ pool }: Box): Promise<void> {
  await pool.query("CHECKPOINT");
}

/** Adds what is missing. The rows that were settled stay behind as dead ones, as they do in life. */
export async function fillUpTo(box: Box, rows: number): Promise<void> {
  const missing = rows - (await box.left());
  if (missing > 0) await box.fill(missing);
}
