import { absolute } from "../figure.js";
import type { Benchmark } from "../part.js";
import type { Box } from "./box.js";
import { boxOf } from "./boxes.js";

const name = "outbox.find";
const rows = 10_000_000;
const finds = 50;

/** An operator's lookups among ten million pending messages: one by its id, then two by their ids. */
export const find: Benchmark = {
  names: [name],
  async measure(run) {
    const box = await boxOf(run, "haystack");
    const count = run.share(rows);
    await fillHaystack(box, count);
    const { admin } = box.store;
    const took: number[] = [];
    for (let n = 0; n < finds; n++) {
      const [one, other] = [n + 1, count - n].map(idOf);
      const started = performance.now();
      const found =
        n % 2 === 0 ? await admin.get(one as string) : (await admin.list({ ids: [one, other] as string[] })).messages;
      took.push(performance.now() - started);
      if (found.length !== 1 + (n % 2)) throw new Error(`${found.length} messages were found by ${one} and ${other}`);
    }
    return [absolute(name, "ms", took)];
  },
};

const idOf = (n: number) => `${n.toString(16).padStart(12, "0")}-needle`;

/** Fills the table without the cost of an append: indexes are created afterwards, and nothing is checked or logged. */
async function fillHaystack({ pool, pending, schema }: Box, count: number): Promise<void> {
  const indexes = await pool.query(
    "SELECT indexdef FROM pg_indexes WHERE schemaname = $1 AND tablename = 'outbox_pending' AND indexname NOT LIKE '%pkey'",
    [schema],
  );
  await pool.query(`
    ALTER TABLE ${pending} SET UNLOGGED;
    ALTER TABLE ${pending} SET (autovacuum_enabled = false);
    ALTER TABLE ${pending} DISABLE TRIGGER USER;
    ALTER TABLE ${pending} DROP CONSTRAINT outbox_pending_pkey;
    DROP INDEX "${schema}".outbox_pending_id_idx;
    INSERT INTO ${pending} (box, lane, id, source, type, content_type, topic, extensions, headers, data)
      SELECT 0, n % 64, lpad(to_hex(n), 12, '0') || '-needle', '/bench', 'bench.Placed', 'application/json', 'bench', '{}', '{}', '\\x7b7d'
      FROM generate_series(1, ${count}) AS n;
    ALTER TABLE ${pending} ADD PRIMARY KEY (box, lane, position);
    ${indexes.rows.map(({ indexdef }) => `${indexdef};`).join("\n")}
    ALTER TABLE ${pending} ENABLE TRIGGER USER`);
}
