import type { Message } from "postbox";
import { consumer } from "./routers.js";
import type { InboxSchema } from "./schema.js";

const columns = "consumer, id, type, source, topic, handler, since, received_at, processed_at";
/** Selects from rows with `consumer`, `id` and `time`. */
const remembered = `SELECT consumer, id,
    'bench.orders.v1.Placed', '/bench', 'bench.orders.v1', 'bench.orders.v1.Placed', time, time, time`;

/** Makes the inbox remember these messages as handled. */
export async function rememberAll({ pool, memory }: InboxSchema, messages: readonly Message[]): Promise<void> {
  await pool.query(
    `INSERT INTO ${memory} (${columns}) ${remembered}
     FROM (SELECT $1::text AS consumer, * FROM unnest($2::text[], $3::timestamptz[]) AS m (id, time)) AS m`,
    [consumer, messages.map(({ id }) => id), messages.map(({ time }) => time)],
  );
  await settle({ pool, memory });
}

/** Makes the inbox remember `count` messages, spread evenly over the past 30 days and over five consumers. */
export async function rememberPast({ pool, memory }: InboxSchema, count: number): Promise<void> {
  await pool.query(
    `INSERT INTO ${memory} (${columns}) ${remembered}
     FROM (SELECT CASE n % 5 WHEN 0 THEN $1::text ELSE $1::text || n % 5 END AS consumer, time,
                  overlay(lpad(to_hex((extract(epoch FROM time) * 1000)::bigint), 12, '0') PLACING '-' FROM 9 FOR 0)
                    || '-7' || substr(gen_random_uuid()::text, 16) AS id
           FROM (SELECT n, statement_timestamp() - (1 - n::double precision / $2::integer) * interval '30 days' AS time
                 FROM generate_series(1, $2::integer) AS n) AS past) AS m`,
    [consumer, count],
  );
  await settle({ pool, memory });
}

async function settle({ pool, memory }: Pick<InboxSchema, "pool" | "memory">): Promise<void> {
  await pool.query(`ANALYZE ${memory}`);
  await pool.query("CHECKPOINT");
}
