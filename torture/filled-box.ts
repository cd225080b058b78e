import type { Pool } from "pg";

/** How much is in each table of the box, and of the inbox's memory. */
export interface Size {
  readonly pending: number;
  readonly wait: number;
  readonly holds: number;
  readonly crowd: number;
  readonly queue: number;
  readonly later: number;
  readonly others: number;
  readonly remembered: number;
  /** Entries of the audit: what was dropped just now, and what operators did. */
  readonly audited: number;
}

/** More than any outbox should ever have to bear. */
export const size: Size = {
  pending: 1_000_000,
  wait: 100_000,
  holds: 6_400,
  /** In one lane each: over a thousand keys, all due; of one key, due as well; of as many keys, due in an hour. */
  crowd: 200_000,
  queue: 50_000,
  later: 20_000,
  others: 200_000,
  remembered: 1_000_000,
  audited: 200_000,
};
/** A multiple of 64, like the number of holds: so a key is always in the same lane. */
const keys = 64_000;
export const crowdedLane = 7;
export const queueLane = 8;
export const laterLane = 9;

const message = `n::text AS id, '/orders' AS source, 'shop.orders.v1.OrderPlaced' AS type, 'application/json' AS content_type,
  'shop.orders.v1' AS topic, '{}'::jsonb AS extensions, '{}'::jsonb AS headers, '\\x7b7d'::bytea AS data`;
const columns = "id, source, type, content_type, topic, extensions, headers, data";

/**
 * Fills a fresh schema. Nothing is analyzed or vacuumed, neither now
 * nor by itself later: what the planner knows is up to the test.
 */
export async function fillBox(pool: Pool, schema: string, of: Size = size): Promise<void> {
  const box = `${schema}.outbox`;
  for (const table of ["pending", "wait", "hold", "scheduled", "parked", "overflow"]) {
    await pool.query(`ALTER TABLE ${box}_${table} SET (autovacuum_enabled = false)`);
  }
  for (const table of ["inbox_message", "audit"]) {
    await pool.query(`ALTER TABLE ${schema}.${table} SET (autovacuum_enabled = false)`);
  }

  await pool.query(`
    INSERT INTO ${box}_pending (box, lane, key, ${columns})
    SELECT 0, n % 64, 'k' || n % ${keys}, ${message} FROM generate_series(1, ${of.pending}) AS n`);
  const wait = (lane: string, key: string, count: number, from: number) => `
    INSERT INTO ${box}_wait (box, lane, position, attempts, key, hold_key, ${columns})
    SELECT 0, ${lane}, -n, 1, ${key}, ${key}, ${message}
    FROM generate_series(${from + 1}, ${from + count}) AS n`;
  await pool.query(wait("n % 64", `'h' || n % ${of.holds}`, of.wait, 0));
  await pool.query(wait(`${crowdedLane}`, "'c' || n % 1000", of.crowd, 1_000_000));
  await pool.query(wait(`${queueLane}`, "'queue'", of.queue, 2_000_000));
  await pool.query(wait(`${laterLane}`, "'later' || n", of.later, 3_000_000));
  await pool.query(`
    INSERT INTO ${box}_hold (box, lane, key, due_at)
    SELECT box, lane, hold_key, now() + interval '1 minute' * CASE WHEN hold_key LIKE 'later%' THEN 60 ELSE -1 END
    FROM ${box}_wait GROUP BY box, lane, hold_key`);
  for (const [table, more, values] of [
    ["parked", "attempts, reason", "10, 'refused'"],
    ["overflow", "attempts", "1"],
  ]) {
    await pool.query(`
      INSERT INTO ${box}_${table} (box, lane, position, ${more}, key, ${columns})
      SELECT 0, n % 64, -10000000 - n, ${values}, 'k' || n, ${message} FROM generate_series(1, ${of.others}) AS n`);
  }
  await pool.query(`
    INSERT INTO ${box}_scheduled (box, lane, due_at, key, ${columns})
    SELECT 0, n % 64, now() + interval '1 second' * (n - 1000), 'k' || n, ${message} FROM generate_series(1, ${of.others}) AS n`);
  await pool.query(`
    INSERT INTO ${schema}.inbox_message (consumer, id, type, source, topic, since)
    SELECT 'billing', n::text, 'shop.orders.v1.OrderPlaced', '/orders', 'shop.orders.v1', now() - interval '1 second' * n
    FROM generate_series(1, ${of.remembered}) AS n`);
  await pool.query(`
    INSERT INTO ${schema}.audit (box, action, actor, count, ids)
    SELECT 'outbox', CASE WHEN n % 2 = 0 THEN 'drop' ELSE 'retry' END, 'relay', 1, ARRAY[n::text]
    FROM generate_series(1, ${of.audited}) AS n`);
}
