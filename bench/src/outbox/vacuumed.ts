import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";
import type { Box } from "./box.js";
import { boxOf } from "./boxes.js";
import { drainBox } from "./drain-box.js";

const name = "outbox.drain.vacuumed";
const rows = 100_000;

/**
 * A drain while the planner believes that the table is empty, compared with true statistics. A vacuum leaves such
 * statistics if the outbox keeps up.
 */
export const vacuumed: Benchmark = {
  names: [name],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const count = run.share(rows);
    const rate = async (prepare: (box: Box) => Promise<void>) => {
      await box.empty();
      await box.fill(count);
      await prepare(box);
      return count / (await drainBox(box, count)).seconds;
    };
    const rates = await alternate(run.rounds, {
      known: () => rate(async () => {}),
      forged: () => rate(forget),
    });
    return [compared(name, "rows/s", rates.forged, "true statistics", rates.known)];
  },
};

async function forget({ pool, schema }: Box): Promise<void> {
  const relations = `SELECT oid FROM pg_class WHERE relnamespace = '"${schema}"'::regnamespace AND relkind IN ('r', 'i')`;
  await pool.query(`DELETE FROM pg_statistic WHERE starelid IN (${relations})`);
  await pool.query(`UPDATE pg_class SET reltuples = 0, relpages = greatest(relpages, 1) WHERE oid IN (${relations})`);
}
