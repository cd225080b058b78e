import type { PostgresPurgeOptions } from "postbox/postgres";
import { compared } from "../figure.js";
import type { Benchmark, Run } from "../part.js";
import { alternate } from "../rounds.js";
import { type Box, template, templateRows } from "./box.js";
import { boxOf } from "./boxes.js";
import { drainBox } from "./drain-box.js";

const old = 1_000_000;
const rows = 200_000;
const weekMs = 7 * 24 * 3_600_000;

/** A relay that keeps sent messages while a million old rows are removed, compared with no removal. */
export const cleanup: Benchmark = {
  names: ["outbox.cleanup", "outbox.cleanup.overflow"],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const rates = await alternate(run.rounds, {
      quiet: () => drainWhile(run, box, async () => {}),
      partitions: () => drainWhile(run, box, (signal) => purge(box, { retentionMs: weekMs, signal }), "a partition"),
      overflow: () =>
        drainWhile(
          run,
          box,
          (signal) => purge(box, { retentionMs: weekMs, partitions: false, signal }),
          "the overflow",
        ),
    });
    const against = "nothing to clean";
    return [
      compared("outbox.cleanup", "rows/s", rates.partitions, against, rates.quiet),
      compared("outbox.cleanup.overflow", "rows/s", rates.overflow, against, rates.quiet),
    ];
  },
};

async function drainWhile(
  run: Run,
  box: Box,
  cleaning: (signal: AbortSignal) => Promise<void>,
  where?: "a partition" | "the overflow",
): Promise<number> {
  const count = run.share(rows);
  await box.empty();
  if (where !== undefined) await keepOld(box, run.share(old), where);
  await box.fill(count);
  const stop = new AbortController();
  const [{ seconds }] = await Promise.all([
    drainBox(box, count, { onSent: "keep" }).finally(() => stop.abort()),
    cleaning(stop.signal),
  ]);
  return count / seconds;
}

async function purge({ store }: Box, options: PostgresPurgeOptions): Promise<void> {
  const { removed } = await store.purge(options);
  if (removed === 0) throw new Error("nothing was removed: nothing was measured");
}

const columns = "box, lane, source, type, time, content_type, topic, key, extensions, headers, data";

/** Adds `count` rows that appear to have been sent a month ago. */
async function keepOld({ pool, schema }: Box, count: number, where: "a partition" | "the overflow"): Promise<void> {
  const day = new Date(Date.now() - 30 * 24 * 3_600_000).toISOString().slice(0, 10);
  const done = `"${schema}".outbox_done`;
  const partition = `"${schema}".outbox_done_${day.replaceAll("-", "")}00`;
  if (where === "a partition") await pool.query(`CREATE TABLE ${partition} (LIKE ${done} INCLUDING DEFAULTS)`);
  await pool.query(
    `INSERT INTO ${where === "a partition" ? partition : `"${schema}".outbox_overflow`} (position, id, attempts, done_at, ${columns})
     SELECT -row_number() OVER (), gen_random_uuid()::text, 1, $1::date, ${columns}
     FROM ${template}, generate_series(1, $2::integer)`,
    [day, Math.ceil(count / templateRows)],
  );
  if (where === "a partition") {
    const bounds = `FROM ('${day}') TO ('${day}'::date + 1)`;
    await pool.query(`ALTER TABLE ${done} ATTACH PARTITION ${partition} FOR VALUES ${bounds}`);
  }
}
