import { compared } from "../figure.js";
import { latencies } from "../latency.js";
import type { Benchmark, Run } from "../part.js";
import { alternate } from "../rounds.js";
import { percentile } from "../statistics.js";
import type { Box } from "./box.js";
import { boxOf } from "./boxes.js";
import { fillAndDrain } from "./drain-box.js";
import { whileOldTransaction } from "./held-xmin.js";
import { outboxLine } from "./outbox-line.js";

const name = "outbox.restart.held-xmin";
const deadRows = 300_000;
const samples = 100;

/**
 * From commit to the sender's call for a relay that starts among dead rows that vacuum cannot remove, compared with an
 * empty table.
 */
export const restartHeldXmin: Benchmark = {
  names: [name],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const rounds = await alternate(run.rounds, {
      held: () =>
        whileOldTransaction(box, async () => {
          await fillAndDrain(box, run.share(deadRows));
          return median(box, run);
        }),
      free: async () => {
        await box.empty();
        return median(box, run);
      },
    });
    return [compared(name, "ms", rounds.held, "no dead rows", rounds.free)];
  },
};

async function median(box: Box, run: Run): Promise<number> {
  const options = { samples: run.share(samples), pauseMs: [20, 40] as const };
  return percentile(
    await latencies((called) => outboxLine(box, called, { notifies: true, among: "dead rows" }), options),
    50,
  );
}
