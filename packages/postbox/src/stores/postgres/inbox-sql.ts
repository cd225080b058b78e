import { slotOf } from "./inbox-slots.js";
import { messageColumns } from "./message-columns.js";
import type { BoxTables } from "./names.js";
import { numbered } from "./write-sql.js";

const columns = messageColumns.map(([name]) => name).join(", ");

/** What is remembered of a message, beside when. */
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
const memory = memoryColumns.map(([name]) => name).join(", ");

/** Waits for others no longer than `limit`, whatever the session says, and puts that back: `ended` is read after the waiting. */
function patient(limit: string): string {
  return `patience AS MATERIALIZED (
      SELECT before, set_config('lock_timeout', ${limit}, true) AS during
      FROM (SELECT current_setting('lock_timeout') AS before OFFSET 0) AS b
    )`;
}
const impatient = "set_config('lock_timeout', (SELECT before FROM patience), true)";

const isOld = (time: string, retention: string) =>
  `coalesce(${time} < statement_timestamp() - ${retention} * interval '1 millisecond', false)`;

/**
 * Remembers a message, or inserts nothing when it is known already: a plain INSERT would abort the transaction then. While another
 * transaction has the same one open, it waits for that one's end. $1 to $11 are the columns, $12 the data to be remembered,
 * $13 the message's time in ms, $14 how long it is remembered, $15 how long to wait.
 */
export function rememberSql(memoryTable: string): string {
  const values = memoryColumns.map(([, type], index) => `$${index + 1}::${type}`);
  return `
    WITH ${patient("$15::text")}, asked AS MATERIALIZED (
      SELECT time, ${isOld("time", "$14::double precision")} AS old
      FROM (SELECT to_timestamp($13::double precision / 1000) AS time) AS t, patience WHERE during IS NOT NULL
    ), new AS (
      INSERT INTO ${memoryTable} (slot, ${memory}, data, processed_at)
      SELECT ${slotOf("time")}, ${values.join(", ")}, $12::bytea, clock_timestamp() FROM asked WHERE NOT old
      ON CONFLICT DO NOTHING
      RETURNING 1
    )
    SELECT old, known.new, ${impatient} FROM asked, (SELECT count(*) AS new FROM new) AS known`;
}

/** The hash of the message $2 of the consumer $1, if it was remembered; $3 is its time. */
export function hashSql(memoryTable: string): string {
  return `
    SELECT r.hash FROM ${memoryTable} r, (SELECT to_timestamp($3::double precision / 1000) AS time) AS t
    WHERE r.consumer = $1::text AND r.id = $2::text AND r.slot = ${slotOf("time")}`;
}

const memoryFields = memoryColumns.map(([name, type]) => `${fieldOf(name)} ${type}`);
const messageFields = messageColumns.map(([name, type]) => `m_${name} ${type === "bytea" ? "text" : type}`);
const fields = [...memoryFields, "payload boolean", "at double precision", "lane smallint", ...messageFields];
const fieldNames = fields.map((field) => field.slice(0, field.indexOf(" ")));

/** As a field of JSON: without quotes, and apart from the message's own. */
export function fieldOf(name: string): string {
  return `r_${name.replaceAll('"', "")}`;
}

/**
 * Appends to the box what of $1, a JSON array without repetitions, is new. Remembered in the order of the ids, so that two who bring
 * the same ones do not wait for each other; appended in the order of the array. $2 is how long it is remembered, $3 how long to wait.
 */
export function keepSql(t: BoxTables): string {
  const values = messageColumns.map(([name, type]) => (type === "bytea" ? `decode(m_${name}, 'base64')` : `m_${name}`));
  return `
    WITH ${patient("$3::text")}, given AS MATERIALIZED (
      SELECT g.*, ${isOld("time", "$2::double precision")} AS old
      FROM (SELECT m.*, to_timestamp(at / 1000) AS time
            FROM patience, ROWS FROM (json_to_recordset($1::json) AS (${fields.join(", ")}))
              WITH ORDINALITY AS m (${fieldNames.join(", ")}, place)
            WHERE during IS NOT NULL) AS g
    ), new AS (
      INSERT INTO ${t.memory} (slot, ${memory}, data)
      SELECT ${slotOf("time")}, ${memoryColumns.map(([name]) => fieldOf(name)).join(", ")},
             CASE WHEN payload THEN decode(m_data, 'base64') END
      FROM given WHERE NOT old ORDER BY r_id
      ON CONFLICT DO NOTHING
      RETURNING id
    ), appended AS (
      INSERT INTO ${t.pending} (lane, ${columns})
      SELECT lane, ${values.join(", ")} FROM given JOIN new ON new.id = r_id WHERE ${numbered} ORDER BY place
      RETURNING 1
    )
    SELECT place, old, new.id IS NOT NULL AS new, ${impatient}
    FROM (SELECT count(*) FROM appended) AS a, given LEFT JOIN new ON new.id = r_id ORDER BY place`;
}

/** One message, a JSON array of one as above: only remembers it. $2 and $3 as above. */
export function adoptSql(t: BoxTables): string {
  return `
    WITH ${patient("$3::text")}, given AS MATERIALIZED (
      SELECT g.*, ${isOld("time", "$2::double precision")} AS old
      FROM (SELECT m.*, to_timestamp(at / 1000) AS time
            FROM patience, json_to_recordset($1::json) AS m (${fields.join(", ")}) WHERE during IS NOT NULL) AS g
    ), new AS (
      INSERT INTO ${t.memory} (slot, ${memory}, data)
      SELECT ${slotOf("time")}, ${memoryColumns.map(([name]) => fieldOf(name)).join(", ")},
             CASE WHEN payload THEN decode(m_data, 'base64') END
      FROM given WHERE NOT old
      ON CONFLICT DO NOTHING
      RETURNING 1
    )
    SELECT old, known.new, ${impatient} FROM given, (SELECT count(*) AS new FROM new) AS known`;
}

/**
 * Puts a message aside, a JSON array of one as above, in a lane that is locked. $2 are its tries, $3 the error, $4 in how many ms it
 * is tried again. What waits has a hold; one that is there already counts as changed, so that no settle ends it that has not
 * seen this.
 */
export function setAsideSql(t: BoxTables, to: "wait" | "parked"): string {
  const values = messageColumns.map(([name, type]) => (type === "bytea" ? `decode(m_${name}, 'base64')` : `m_${name}`));
  const failures =
    "jsonb_build_array(jsonb_build_object('attempt', $2::integer, 'at', clock_timestamp(), 'error', $3::text))";
  const position = `nextval(pg_get_serial_sequence('${t.pending}', 'position'))`;
  const given = `FROM json_to_recordset($1::json) AS m (${fields.join(", ")})`;
  if (to === "parked") {
    return `
    INSERT INTO ${t.parked} (lane, position, ${columns}, attempts, reason, failures)
    SELECT lane, ${position}, ${values.join(", ")}, $2::integer, $3::text, ${failures}
    ${given} WHERE $4::double precision IS NULL`;
  }
  return `
    WITH kept AS (
      INSERT INTO ${t.wait} (lane, position, ${columns}, attempts, last_error, failures, hold_key)
      SELECT lane, ${position}, ${values.join(", ")}, $2::integer, $3::text, ${failures}, coalesce(m_key, chr(1) || m_id)
      ${given} RETURNING lane, hold_key
    )
    INSERT INTO ${t.hold} AS h (lane, key, due_at)
    SELECT lane, hold_key, clock_timestamp() + $4::double precision * interval '1 millisecond' FROM kept
    ON CONFLICT (lane, key) DO UPDATE SET changes = h.changes + 1`;
}

/**
 * Takes the row $3 of lane $1 out of the box, as handled, if $2 is still the lane's epoch: as in a settle, the lane is locked against
 * a take-over until the transaction ends. $4 is its turn, where it waits. $5 to $8 say what was handled, by whom; $7 is its time.
 */
export function handledSql(t: BoxTables, from: "pending" | "wait"): string {
  return `
    WITH fence AS MATERIALIZED (
      SELECT lane FROM ${t.lane} WHERE lane = $1::smallint AND epoch = $2::bigint FOR KEY SHARE
    ), gone AS (
      DELETE FROM ${t[from]} r USING fence f
      WHERE r.lane = f.lane AND r.position = $3::bigint AND ${from === "wait" ? "r.turn = $4::integer" : "$4::integer IS NOT NULL"}
      RETURNING 1
    ), done AS (
      UPDATE ${t.memory} m SET processed_at = clock_timestamp(), handler = $8::text
      FROM (SELECT to_timestamp($7::double precision / 1000) AS time) AS t
      WHERE m.consumer = $5::text AND m.id = $6::text AND m.slot = ${slotOf("time")} AND EXISTS (SELECT FROM gone)
    )
    SELECT count(*) AS count FROM gone`;
}
