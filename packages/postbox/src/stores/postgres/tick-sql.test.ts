import { randomBytes } from "node:crypto";
import { describeOnEach } from "@postbox/testkit/servers";
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { postgresStore } from "./index.js";

describeOnEach("postgres", ({ url }) => {
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  const schema = `test_${randomBytes(6).toString("hex")}`;
  const store = postgresStore({ pool, schema });

  beforeAll(() => store.migrate());
  afterAll(async () => {
    await pool.query(`DROP SCHEMA ${schema} CASCADE`);
    await pool.end();
  });

  it("a tick finds its schedule by the index, although the session planned it when the table was empty", async () => {
    await pool.query(`VACUUM ${schema}.schedule`);
    for (let call = 0; call < 10; call++) await store.transaction((tx) => store.tick(tx, "s-1"));
    await pool.query(`INSERT INTO ${schema}.schedule (name, last_tick)
      SELECT 's-' || n, '2026-01-01T00:00Z' FROM generate_series(2, 1000) AS n`);
    await store.transaction(async (tx) => {
      /** Includes scans that this session has not reported yet. */
      const scans = async () => {
        const { rows } = await tx.query(
          "SELECT seq_scan::int AS scans FROM pg_stat_xact_user_tables WHERE relid = $1::regclass",
          [`${schema}.schedule`],
        );
        return rows[0]?.scans;
      };
      const before = await scans();
      const after = Date.UTC(2026, 0, 1);
      expect(await store.tick(tx, "s-500", { after, tick: after + 1 })).toMatchObject({ claimed: true });
      expect(await scans()).toBe(before);
    });
  });

  it("a tick is the same in a session with another time zone", async () => {
    await pool.query(`INSERT INTO ${schema}.schedule (name, last_tick) VALUES ('zoned', '2026-01-01T00:00Z')`);
    await store.transaction(async (tx) => {
      await tx.query("SET LOCAL TimeZone = 'Asia/Kolkata'");
      const { lastTick: after } = await store.tick(tx, "zoned");
      expect(after).toBe(Date.UTC(2026, 0, 1));
      const tick = after + 1;
      expect(await store.tick(tx, "zoned", { after, tick })).toMatchObject({ claimed: true, lastTick: tick });
    });
  });
});
