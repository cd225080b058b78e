import { randomBytes } from "node:crypto";
import { describeOnEach } from "@postbox/testkit/servers";
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { postgresStore } from "./index.js";

describeOnEach("postgres", ({ url }) => {
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  const schema = `test_${randomBytes(6).toString("hex")}`;
  const scheduled = `${schema}.outbox_scheduled`;

  beforeAll(() => postgresStore({ pool, schema }).migrate());
  afterAll(async () => {
    await pool.query(`DROP SCHEMA ${schema} CASCADE`);
    await pool.end();
  });

  it("cancel finds its row by the index, although the session planned it when the table was empty", async () => {
    const cancel = async (key: string) =>
      (await pool.query(`SELECT ${schema}.cancel('t.T', $1) AS found`, [key])).rows[0]?.found;
    /** Includes scans that this session has not reported yet. */
    const scans = async () => {
      const { rows } = await pool.query(
        'SELECT seq_scan::int AS "table", idx_scan::int AS index FROM pg_stat_xact_user_tables WHERE relid = $1::regclass',
        [scheduled],
      );
      return rows[0];
    };
    await pool.query(`VACUUM ${scheduled}`);
    // After a few calls, a session uses one generic plan for all of them.
    for (let call = 0; call < 10; call++) expect(await cancel("k-1")).toBe(false);
    await pool.query(`INSERT INTO ${scheduled} (due_at, box, lane, id, source, type, content_type, topic, extensions, headers, data, schedule_key)
      SELECT now() + interval '1 day', 0, 1, n::text, '/s', 't.T', 'a/b', 't', '{}', '{}', '', 'k-' || n FROM generate_series(1, 1000) AS n`);
    await pool.query("BEGIN");
    try {
      const before = await scans();
      expect(await cancel("k-500")).toBe(true);
      const after = await scans();
      expect({ table: after.table - before.table, index: after.index - before.index }).toEqual({ table: 0, index: 1 });
    } finally {
      await pool.query("ROLLBACK");
    }
  });
});
