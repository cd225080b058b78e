import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { pgTransactions } from "postbox/postgres";
import { afterAll, beforeAll, expect, it } from "vitest";
import {
  forgedStatistics,
  forgeStatistics,
  hostileSettings,
  type WatchedPool,
  watchedPool,
} from "./forged-statistics.js";

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 2 });
  const { pool, schema, create, drop } = postgresTestData({ connect, transactions: pgTransactions });
  const watched = watchedPool(url);

  beforeAll(async () => {
    await create();
    await pool.query(`
      CREATE TABLE ${schema}.pile (lane integer, position bigint, PRIMARY KEY (lane, position)) WITH (autovacuum_enabled = false);
      INSERT INTO ${schema}.pile SELECT n % 64, n FROM generate_series(1, 20000) AS n`);
  });
  afterAll(async () => {
    await watched.pool.end();
    await drop();
  });

  const lanes = Array.from({ length: 100 }, (_, n) => (n + 1) % 64);
  const positions = Array.from({ length: 100 }, (_, n) => n + 1);
  const keys = "unnest($1::integer[], $2::bigint[]) AS i (lane, position)";
  const joined = `SELECT p.* FROM ${keys} JOIN ${schema}.pile p ON p.lane = i.lane AND p.position = i.position`;
  const lateral = `SELECT p.* FROM ${keys} CROSS JOIN LATERAL (
    SELECT * FROM ${schema}.pile p WHERE p.lane = i.lane AND p.position = i.position OFFSET 0) AS p`;

  /** The most pages that the statement touches, whatever the planner believes. */
  async function most(text: string, { pool: forging, ranBy }: WatchedPool): Promise<number> {
    const buffers: number[] = [];
    for (const forged of forgedStatistics) {
      await forgeStatistics(pool, schema, forged);
      const ran = await ranBy(() => forging.query(text, [lanes, positions]));
      expect(ran.map((statement) => statement.text)).toEqual([text]);
      buffers.push(...ran.map((statement) => statement.buffers));
    }
    return Math.max(...buffers);
  }

  it("turns a join by key into a scan per row", async () => {
    expect(await most(joined, watched)).toBeGreaterThan(50 * lanes.length);
  });

  it.each(Object.entries(hostileSettings))("leaves a lateral read of each key alone, with %s", async (_, settings) => {
    const hostile = watchedPool(url, settings);
    try {
      expect(await most(lateral, hostile)).toBeLessThan(10 * lanes.length);
    } finally {
      await hostile.pool.end();
    }
  });
});
