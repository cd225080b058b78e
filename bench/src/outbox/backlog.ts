import type { RelayOptions } from "postbox";
import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";
import type { Box } from "./box.js";
import { boxOf } from "./boxes.js";
import { drainBeyondCursors } from "./by-hand.js";
import { drainBox } from "./drain-box.js";
import type { Progress } from "./progress.js";

const large = 1_000_000;
const small = 10_000;
/** Left out: taking the lease, and the first reads. */
const startUp = 2_000;
/** Left out of the small backlog: its last reads find less than they could take. */
const tail = 1_000;
const smallDrains = 8;
const steady = (small - startUp - tail) * smallDrains;
/** Little is read ahead, so that ten thousand rows are enough to come to a steady state. */
const options: RelayOptions = { batchSize: 200 };

type Drain = (box: Box, rows: number) => Promise<Pick<Progress, "rate">>;
const byRelay: Drain = async (box, rows) => (await drainBox(box, rows, options)).sender;

/**
 * The steady rate in front of a million rows, against the same in front of ten thousand. By hand, too: that shows what
 * the server makes of a table that is larger than its memory.
 */
export const backlog: Benchmark = {
  names: ["outbox.backlog", "outbox.backlog.by-hand"],
  async measure(run) {
    const million = await boxOf(run, "million");
    const ours = await boxOf(run, "ours");
    const inFrontOf = {
      million: (drain: Drain) => async () => {
        await fillUpTo(million, run.share(large));
        await calm(million);
        return (await drain(million, startUp + steady)).rate(startUp, startUp + steady);
      },
      tenThousand: (drain: Drain) => async () => {
        let seconds = 0;
        for (let drains = 0; drains < smallDrains; drains++) {
          await ours.empty();
          await ours.fill(small);
          await calm(ours);
          const progress = await drain(ours, small);
          seconds += (small - startUp - tail) / progress.rate(startUp, small - tail);
        }
        return steady / seconds;
      },
    };
    const rates = await alternate(run.rounds, {
      large: inFrontOf.million(byRelay),
      small: inFrontOf.tenThousand(byRelay),
      largeByHand: inFrontOf.million(drainBeyondCursors),
      smallByHand: inFrontOf.tenThousand(drainBeyondCursors),
    });
    const against = "a backlog of 10,000";
    return [
      compared("outbox.backlog", "rows/s", rates.large, against, rates.small),
      compared("outbox.backlog.by-hand", "rows/s", rates.largeByHand, against, rates.smallByHand),
    ];
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
