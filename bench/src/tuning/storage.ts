import { absolute } from "../figure.js";
import { boxOf } from "../outbox/boxes.js";
import { fillAndDrain } from "../outbox/drain-box.js";
import type { Benchmark } from "../part.js";

const rows = 50_000;

/** The bytes on disk for a message of 256 bytes, indexes included. */
export const storage: Benchmark = {
  names: ["tuning.storage"],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const count = run.share(rows);
    const perRow = async (tables: string) => {
      const { rows: sizes } = await box.pool.query(
        `SELECT sum(pg_total_relation_size(oid)) AS bytes FROM pg_class
         WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND relname ~ $2`,
        [`"${box.schema}"`, tables],
      );
      return Number(sizes[0].bytes) / count;
    };
    await box.empty();
    await box.fill(count);
    const pending = await perRow("^outbox_pending$");
    await fillAndDrain(box, count, { onSent: "keep" });
    const done = await perRow("^outbox_done_");
    return [absolute("tuning.storage.pending", "bytes", [pending]), absolute("tuning.storage.done", "bytes", [done])];
  },
};
