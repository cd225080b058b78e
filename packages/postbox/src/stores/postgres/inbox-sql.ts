import { messageColumns } from "./message-columns.js";
import { type BoxTables, boxTable, inboxTable } from "./names.js";
import { numbered } from "./write-sql.js";

const columns = messageColumns.map(([name]) => name).join(", ");

/** The remembered columns of a message, except its times. */
export const memoryColumns = [
  ["consumer", "text"],
  ["id", "text"],
  ["type", "text"],
  ["source", "text"],
  ["topic", "text"],
  ["event_version", "text"],
  ["partition", "text"],
  ['"offset"', "text"],
  ["correlation_id", "text"],
  ["handler", "text"],
  ["hash", "text"],
] as const;
export const memory = memoryColumns.map(([name]) => name).join(", ");

/**
 * Limits lock waits to `limit`, whatever the session's setting is. `impatient`, read after waiting, restores that
 * setting.
 */
function patient(limit: string): string {
  return `patience AS MATERIALIZED (
      SELECT before, set_config('lock_timeout', ${limit}, true) AS during
      FROM (SELECT current_setting('lock_timeout') AS before OFFSET 0) AS b
    )`;
}
const impatient = "set_config('lock_timeout', (SELECT before FROM patience), true)";

/**
 * The time from which retention counts: the later of two. By its arrival, an id is remembered for the whole retention,
 * whatever time its copies carry. By its own time, a copy that arrives after the id was forgotten is too old, even if
 * the producer's clock is ahead.
 */
export function since(time: string): string {
  return `greatest(clock_timestamp(), ${time})`;
}

/**
 * Whether a message is older than the retention, or than the newest message forgotten for any reason. False for a
 * message without a time.
 */
export function isOld(schema: string, consumer: string, time: string, retention: string): string {
  const forgotten = `(SELECT forgotten_until FROM ${boxTable(schema)} WHERE name = 'inbox/' || ${consumer})`;
  const since = `greatest(statement_timestamp() - ${retention} * interval '1 millisecond', ${forgotten})`;
  return `coalesce(${time} < ${since}, false)`;
}

/** The hash of the message $2 of the consumer $1, if it is remembered. */
export function hashSql(schema: string): string {
  return `SELECT r.hash FROM ${inboxTable(schema)} r WHERE r.consumer = $1::text AND r.id = $2::text`;
}

const memoryFields = memoryColumns.map(([name, type]) => `${fieldOf(name)} ${type}`);
const messageFields = messageColumns.map(([name, type]) => `m_${name} ${type === "bytea" ? "text" : type}`);
const fields = [...memoryFields, "payload boolean", "at double precision", "lane integer", ...messageFields];
const fieldNames = fields.map((field) => field.slice(0, field.indexOf(" ")));

/** The name of a JSON field: without quotes, and distinct from the message's own fields. */
export function fieldOf(name: string): string {
  return `r_${name.replaceAll('"', "")}`;
}

/** The message's columns, each from such a field. */
const messageValues = messageColumns.map(([name, type]) =>
  type === "bytea" ? `decode(m_${name}, 'base64')` : `m_${name}`,
);

/**
 * `given` has the elements of $1, a JSON array without duplicates; `new` has those that were not known yet. Inserts in
 * the order of the ids, so that concurrent calls with the same ids do not deadlock. $2 is the retention, $3 the lock
 * timeout.
 */
function remembered(schema: string, t: BoxTables): string {
  return `${patient("$3::text")}, given AS MATERIALIZED (
      SELECT g.*, ${isOld(schema, "r_consumer", "time", "$2::double precision")} AS old
      FROM (SELECT m.*, to_timestamp(at / 1000) AS time
            FROM patience, ROWS FROM (json_to_recordset($1::json) AS (${fields.join(", ")}))
              WITH ORDINALITY AS m (${fieldNames.join(", ")}, place)
            WHERE during IS NOT NULL) AS g
    ), new AS (
      INSERT INTO ${t.memory} (${memory}, data, since)
      SELECT ${memoryColumns.map(([name]) => fieldOf(name)).join(", ")},
             CASE WHEN payload THEN decode(m_data, 'base64') END, ${since("time")}
      FROM given WHERE NOT old ORDER BY r_id
      ON CONFLICT DO NOTHING
      RETURNING id
    )`;
}

/** Messages that are too old to know whether they are duplicates, unless they are still remembered. */
function tooOld(t: BoxTables): string {
  return `old AND NOT EXISTS (SELECT FROM ${t.memory} k WHERE k.consumer = r_consumer AND k.id = r_id)`;
}

/** Appends the new messages of $1 to the box, in the order of the array. $1 to $3 as above. */
export function keepSql(schema: string, t: BoxTables): string {
  return `
    WITH ${remembered(schema, t)}, appended AS (
      INSERT INTO ${t.pending} (box, lane, ${columns})
      SELECT ${t.box}, lane, ${messageValues.join(", ")} FROM given JOIN new ON new.id = r_id WHERE ${numbered} ORDER BY place
      RETURNING 1
    )
    SELECT place, ${tooOld(t)} AS old, new.id IS NOT NULL AS new, ${impatient}
    FROM (SELECT count(*) FROM appended) AS a, given LEFT JOIN new ON new.id = r_id ORDER BY place`;
}

/** Only remembers one message. $1 to $3 as above. */
export function adoptSql(schema: string, t: BoxTables): string {
  return `
    WITH ${remembered(schema, t)}
    SELECT ${tooOld(t)} AS old, known.new, ${impatient} FROM given, (SELECT count(*) AS new FROM new) AS known`;
}

/** Appends a message, in a JSON array of one as above, and so gives it a position. */
export function placeSql(t: BoxTables): string {
  return `
    INSERT INTO ${t.pending} (box, lane, ${columns})
    SELECT ${t.box}, lane, ${messageValues.join(", ")} FROM json_to_recordset($1::json) AS m (${fields.join(", ")})
    RETURNING position`;
}

/**
 * Moves the row just appended at $2 in lane $1, which is locked, to `wait` or `parked`. $3 is its attempts, $4 the
 * error, $5 the ms until its retry. A waiting row has a hold. An existing hold counts as changed, so that no settle
 * ends it without having seen this row.
 */
export function setAsideSql(t: BoxTables, to: "wait" | "parked"): string {
  const failures =
    "jsonb_build_array(jsonb_build_object('attempt', $3::integer, 'at', clock_timestamp(), 'error', $4::text))";
  const placed = `placed AS (
      DELETE FROM ${t.pending} WHERE box = ${t.box} AND lane = $1::integer AND position = $2::bigint RETURNING *
    )`;
  if (to === "parked") {
    return `
    WITH ${placed}
    INSERT INTO ${t.parked} (box, lane, position, ${columns}, attempts, reason, failures)
    SELECT box, lane, position, ${columns}, $3::integer, $4::text, ${failures} FROM placed WHERE $5::double precision IS NULL`;
  }
  return `
    WITH ${placed}, kept AS (
      INSERT INTO ${t.wait} (box, lane, position, ${columns}, attempts, last_error, failures, hold_key)
      SELECT box, lane, position, ${columns}, $3::integer, $4::text, ${failures}, coalesce(key, chr(1) || id) FROM placed
      RETURNING box, lane, hold_key
    )
    INSERT INTO ${t.hold} AS h (box, lane, key, due_at)
    SELECT box, lane, hold_key, clock_timestamp() + $5::double precision * interval '1 millisecond' FROM kept
    ON CONFLICT (box, lane, key) DO UPDATE SET changes = h.changes + 1`;
}
