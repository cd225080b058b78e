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
/** Rows excluded at the start: the relay acquires its lease and makes its first reads. */
const startUp = 2_000;
/** Rows excluded at the end of the small backlog: the last reads find less than a full batch. */
const tail = 1_000;
const smallDrains = 8;
const steady = (small - startUp - tail) * smallDrains;
/** Small batches read little ahead, so that ten thousand rows suffice for a steady state. */
const options: RelayOptions = { batchSize: 200 };

type Drain = (box: Box, rows: number) => Promise<Pick<Progress, "rate">>;
const byRelay: Drain = async (box, rows) => (await drainBox(box, rows, options)).sender;

/**
 * The steady rate with a backlog of a million rows, compared with ten thousand. The comparison is repeated by hand: it
 * shows how the server copes with a table larger than its memory.
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

/** Otherwise the server would still be writing out the million rows during the measurement, and only on that side. */
async function calm({ pool }: Box): Promise<void> {
  await pool.query("CHECKPOINT");
}

/** Fills the box up to `rows`. Settled rows stay behind as dead rows, as in production. */
export async function fillUpTo(box: Box, rows: number): Promise<void> {
  const missing = rows - (await box.left());
  if (missing > 0) await box.fill(missing);
}
