import type pg from "pg";
import { createOutbox } from "postbox";
import { type PostgresStore, postgresStore } from "postbox/postgres";
import type { Database } from "../database.js";
import { Placed, randomOrder } from "./placed.js";

/** A schema with the store's own tables. One side of a comparison uses them through the library, the other by hand. */
export interface Box {
  readonly url: string;
  readonly schema: string;
  readonly pool: pg.Pool;
  readonly store: PostgresStore<pg.ClientBase>;
  /** The table that an append writes to. */
  readonly pending: string;
  /** Removes all rows, including dead ones. */
  empty(): Promise<void>;
  /** Adds rows in one transaction, so that they all appear at once. By default, copies the template. */
  fill(rows: number, from?: string): Promise<void>;
  /** The number of rows that are not settled. */
  left(): Promise<number>;
}

/** The number of published rows in the template. `fill` lets the server copy them. */
export const templateRows = 10_000;
/** Begins with the time, as the library's ids do. */
const newId =
  "lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || " +
  "substr(gen_random_uuid()::text, 14)";
export const template = "public.template";

export async function createBox(database: Database, schema: string): Promise<Box> {
  const pool = database.pool(12);
  const store = postgresStore({ pool, schema });
  await store.migrate();
  // Creates the partitions, as a relay with a retention does.
  await store.purge({ retentionMs: 7 * 24 * 3_600_000 });
  const pending = `"${schema}".outbox_pending`;
  const columns = await createTemplate(pool, store, pending);

  return {
    url: database.url,
    schema,
    pool,
    store,
    pending,
    async empty() {
      const tables = ["pending", "wait", "hold", "parked", "done", "overflow"].map(
        (part) => `"${schema}".outbox_${part}`,
      );
      await pool.query(`TRUNCATE ${tables.join(", ")}`);
    },
    async fill(rows, from = template) {
      // PostgreSQL logs the full page on its first change after a checkpoint. Before the fill, the fill pays for that;
      // after it, the measured code would.
      await pool.query("CHECKPOINT");
      await store.transaction(async (tx) => {
        for (let missing = rows; missing > 0; missing -= templateRows) {
          await tx.query(
            `INSERT INTO ${pending} (id, ${columns}) SELECT ${newId}, ${columns}
             FROM ${from} ORDER BY position LIMIT $1`,
            [Math.min(missing, templateRows)],
          );
        }
      });
      await pool.query(`ANALYZE ${pending}`);
    },
    async left() {
      const { rows } = await pool.query(
        `SELECT (SELECT count(*) FROM ${pending}) + (SELECT count(*) FROM "${schema}".outbox_wait) AS left`,
      );
      return Number(rows[0].left);
    },
  };
}

/** Creates a template in which every tenth row has the same key. */
export async function createHotTemplate({ pool }: Box): Promise<string> {
  const hot = "public.hot_template";
  await pool.query(`CREATE TABLE ${hot} AS SELECT * FROM ${template}`);
  await pool.query(
    `UPDATE ${hot} SET (lane, key) = (SELECT lane, key FROM ${template} ORDER BY position LIMIT 1) WHERE position % 10 = 0`,
  );
  return hot;
}

/**
 * Publishes the template's rows once per database. Returns the columns to copy: all except the id and those with a
 * default.
 */
async function createTemplate(pool: pg.Pool, store: PostgresStore<pg.ClientBase>, pending: string): Promise<string> {
  const exists = await pool.query("SELECT to_regclass($1) IS NOT NULL AS yes", [template]);
  if (!exists.rows[0].yes) {
    const outbox = createOutbox(store, { source: "/bench" });
    await store.transaction((tx) =>
      outbox.in(tx).publishAll(Array.from({ length: templateRows }, () => Placed.message(randomOrder()))),
    );
    await pool.query(`CREATE TABLE ${template} AS SELECT * FROM ${pending}; TRUNCATE ${pending}`);
  }
  const { rows } = await pool.query(
    `SELECT string_agg(attname, ', ' ORDER BY attnum) AS columns FROM pg_attribute
     WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND NOT atthasdef AND attidentity = ''
       AND attname <> 'id'`,
    [pending],
  );
  return rows[0].columns;
}
