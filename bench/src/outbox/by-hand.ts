import { randomUUID } from "node:crypto";
import type { ClientBase } from "pg";
import type { Box } from "./box.js";
import { randomOrder } from "./placed.js";
import { createProgress, type Progress } from "./progress.js";

/* The bare side of the comparisons: the code that a user would write for the same tables without the library. */

const messageColumns = [
  ["id", "text"],
  ["source", "text"],
  ["type", "text"],
  ["time", "text"],
  ["content_type", "text"],
  ["topic", "text"],
  ["key", "text"],
  ["extensions", "jsonb"],
  ["headers", "jsonb"],
  ["data", "bytea"],
] as const;
const names = messageColumns.map(([name]) => name).join(", ");

const read = `lane, position, attempts, subject, data_schema, ${names}`;
const readAtOnce = 1000;

/** A row as it is read. */
export type ReadRow = ReturnType<typeof handMadeRow>;

/**
 * Repeats three steps until all rows are drained: reads up to 1,000 rows, publishes them if `publish` is given, deletes
 * them by primary key. Returns the seconds it took.
 */
export async function drainByHand(
  { pool, pending }: Box,
  rows: number,
  publish?: (rows: readonly ReadRow[]) => Promise<void>,
): Promise<number> {
  const select = `SELECT ${read} FROM ${pending} WHERE box = 0 ORDER BY lane, position LIMIT ${readAtOnce}`;
  const client = await pool.connect();
  try {
    const started = performance.now();
    for (let left = rows; left > 0; ) {
      const { rows: rowsRead } = await client.query(select);
      if (rowsRead.length === 0) throw new Error(`${left} of ${rows} rows are missing`);
      if (publish !== undefined) await publish(rowsRead);
      await removeByHand(client, pending, rowsRead);
      left -= rowsRead.length;
    }
    return (performance.now() - started) / 1000;
  } finally {
    client.release();
  }
}

/**
 * The upper bound for any relay: reads each lane beyond its cursor, so that it never scans what it has deleted, and
 * deletes by key. It is not safe to use: it would lose late commits.
 */
export async function drainBeyondCursors({ pool, pending }: Box, rows: number): Promise<Progress> {
  const select = `SELECT p.* FROM unnest($1::integer[], $2::bigint[]) AS l (lane, cursor)
    CROSS JOIN LATERAL (
      SELECT ${read} FROM ${pending} WHERE box = 0 AND lane = l.lane AND position > l.cursor ORDER BY position LIMIT $3
    ) p`;
  const lanes = Array.from({ length: 64 }, (_, lane) => lane);
  const cursors = new Map<number, string>();
  const progress = createProgress();
  const client = await pool.connect();
  try {
    while (progress.count < rows) {
      const values = [lanes, lanes.map((lane) => cursors.get(lane) ?? "0"), Math.ceil(readAtOnce / lanes.length)];
      const { rows: rowsRead } = await client.query({ name: "beyond-cursors", text: select, values });
      if (rowsRead.length === 0) throw new Error(`of ${rows} rows there are ${progress.count}`);
      for (const { lane, position } of rowsRead) cursors.set(lane, position);
      await removeByHand(client, pending, rowsRead);
      progress.add(rowsRead.length);
    }
  } finally {
    client.release();
  }
  return progress;
}

async function removeByHand(client: ClientBase, pending: string, rows: readonly { lane: number; position: string }[]) {
  // A join with the arrays would be planned as a scan of the whole table, at two thirds of the rate.
  const text = `DELETE FROM ${pending}
    WHERE box = 0 AND (lane, position) IN (SELECT * FROM unnest($1::integer[], $2::bigint[]))`;
  await client.query(text, [rows.map(({ lane }) => lane), rows.map(({ position }) => position)]);
}

/** Inserts the row that `outbox.in(tx).publish(Placed, order)` writes. */
export async function appendByHand(client: ClientBase, { pending }: Box): Promise<void> {
  const values = messageColumns.map(([, type], index) => `$${index + 2}::${type}`).join(", ");
  const row = handMadeRow();
  await client.query(`INSERT INTO ${pending} (box, lane, ${names}) VALUES (0, $1::integer, ${values})`, [
    row.lane,
    ...messageColumns.map(([name]) => row[name]),
  ]);
}

/** Inserts many such rows from one JSON parameter: the fastest known statement that keeps their order. */
export async function appendManyByHand(client: ClientBase, { pending }: Box, rows: number): Promise<void> {
  const fields = messageColumns.map(([name, type]) => `${name} ${type === "bytea" ? "text" : type}`).join(", ");
  const values = messageColumns.map(([name]) => (name === "data" ? "decode(data, 'base64')" : name)).join(", ");
  const json = Array.from({ length: rows }, () => {
    const row = handMadeRow();
    return { ...row, data: row.data.toString("base64") };
  });
  await client.query(
    `INSERT INTO ${pending} (box, lane, ${names})
     SELECT 0, lane, ${values}
     FROM ROWS FROM (json_to_recordset($1::json) AS (lane integer, ${fields})) WITH ORDINALITY AS m (lane, ${names}, place)
     ORDER BY place`,
    [JSON.stringify(json)],
  );
}

/** The column values of such a row. */
export function handMadeRow() {
  const order = randomOrder();
  return {
    lane: Number(order.orderId.slice(-4)) % 64,
    id: randomUUID(),
    source: "/bench",
    type: "bench.orders.v1.Placed",
    time: new Date().toISOString(),
    content_type: "application/json",
    topic: "bench.orders.v1",
    key: order.orderId,
    extensions: {},
    headers: {},
    data: Buffer.from(JSON.stringify(order)),
  };
}
