import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";
import type { Box } from "./box.js";
import { boxOf } from "./boxes.js";
import { fillAndDrain } from "./drain-box.js";

const name = "outbox.held-xmin";
const rows = 300_000;
const last = 50_000;

/**
 * The end of a long drain while an old transaction keeps every deleted row from being removed, compared with no such
 * transaction.
 */
export const heldXmin: Benchmark = {
  names: [name],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const count = run.share(rows);
    const rate = async () => (await fillAndDrain(box, count)).sender.rate(count - run.share(last), count);
    const rates = await alternate(run.rounds, { free: rate, held: () => whileOldTransaction(box, rate) });
    return [compared(name, "rows/s", rates.held, "no old transaction", rates.free)];
  },
};

/** Runs `work` while an old transaction keeps vacuum from removing dead rows. */
export async function whileOldTransaction(box: Box, work: () => Promise<number>): Promise<number> {
  // The transaction must not touch the table: `work` truncates it first, which would wait for such a transaction.
  const client = await box.pool.connect();
  try {
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await client.query("SELECT pg_current_xact_id()");
    return await work();
  } finally {
    await client.query("ROLLBACK").finally(() => client.release());
  }
}
