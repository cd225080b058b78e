import { guardedStatement } from "../../transactions/guarded-statement.js";
import { messageColumns, usualColumns } from "./message-columns.js";
import type { BoxTables } from "./names.js";
import { cancelSql, scheduleFrom } from "./schedule-sql.js";

/*
 * What is written in the user's transaction.
 */

const names = messageColumns.map(([name]) => name);
const oneMessage = ["$1::integer", ...messageColumns.map(([, type], index) => `$${index + 2}::${type}`)];

/**
 * Always true. The transaction gets its number by it, before the row gets its position: a reader that sees a higher position
 * finds the transaction among those that are open, and knows that something may still come.
 */
export const numbered = "pg_current_xact_id() IS NOT NULL";

/** What must hold for the statement as a whole, beside what chooses its rows: that its transaction has its number, and is the user's. */
const numberedAnd = (condition: string) => `${numbered} AND ${condition}`;

/** The statements that append to a box: one message, one of the usual kind, many; and in turn with others of their keys. */
export function appendSql(t: BoxTables) {
  return {
    one: guardedStatement((condition) => appendOneSql(t, messageColumns, condition)),
    usual: guardedStatement((condition) => appendOneSql(t, usualColumns, condition)),
    oneInTurn: guardedStatement((condition) => appendOneInTurnSql(t, condition)),
    many: guardedStatement((condition) => appendFrom(t, "", condition)),
    manyInTurn: guardedStatement((condition) => appendManyInTurnSql(t, condition)),
    timed: guardedStatement((condition) => appendTimedSql(t, "", condition)),
    timedInTurn: guardedStatement((condition) => appendTimedSql(t, "locked, ", condition)),
    keyed: guardedStatement((condition) => appendKeyedSql(t, "", condition)),
    keyedInTurn: guardedStatement((condition) => appendKeyedSql(t, "locked, ", condition)),
    cancel: cancelSql(t),
  } as const;
}

/**
 * One message: $1 is its lane, then come its columns in order, JSON as text. Without their types, which are those of the
 * columns: there is less to parse. But for JSON, which some libraries send as text, and so has to be cast. `lane` stands before
 * `position`, so that the transaction gets its number first.
 */
function appendOneSql(t: BoxTables, columns: typeof messageColumns, condition: string): string {
  const params = columns.map(([, type], index) => `$${index + 2}${type === "jsonb" ? "::jsonb" : ""}`);
  return `
    INSERT INTO ${t.pending} (box, lane, ${columns.map(([name]) => name).join(", ")})
    VALUES (${t.box}, CASE WHEN ${numberedAnd(condition)} THEN $1::integer END, ${params.join(", ")})`;
}

/**
 * The same, behind the lock that the last parameter names. The row comes out of the lock's own, so that it gets its
 * position after the lock was got, however long that took.
 */
function appendOneInTurnSql(t: BoxTables, condition: string): string {
  return `
    WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock($${oneMessage.length + 1}::bigint))
    INSERT INTO ${t.pending} (box, lane, ${names.join(", ")})
    SELECT ${t.box}, ${oneMessage.join(", ")} FROM locked WHERE ${numberedAnd(condition)}`;
}

/** Many, as `appendFrom` says, behind the locks that $2 lists, a JSON array; got in its order, and before any position, as above. */
function appendManyInTurnSql(t: BoxTables, condition: string): string {
  return `
    WITH ${locked}
    ${appendFrom(t, "locked, ", condition)}`;
}

const locked = `locked AS MATERIALIZED (
      SELECT count(pg_advisory_xact_lock(number::bigint)) FROM json_array_elements_text($2::json) AS number)`;

/**
 * Many, some of which have a moment to be sent at, `due_at`: those whose moment has come as ever, the others are scheduled. By the
 * database's clock, and by one reading of it, or one message could be on both sides of now.
 */
function appendTimedSql(t: BoxTables, first: "" | "locked, ", condition: string): string {
  return `
    WITH ${timed(first)}, due AS (${appendDue(t, isDue, condition)})
    INSERT INTO ${t.scheduled} (box, lane, due_at, ${names.join(", ")})
    SELECT ${t.box}, lane, due_at, ${names.join(", ")} FROM m WHERE NOT ${isDue} AND ${condition} ORDER BY place`;
}

/**
 * Many, some of which have a schedule key: these are scheduled even if they are due. Apart from the statement above, since a role
 * that replaces nothing needs no right to.
 */
function appendKeyedSql(t: BoxTables, first: "" | "locked, ", condition: string): string {
  const atOnce = `(${isDue} AND schedule_key IS NULL)`;
  return `
    WITH ${timed(first)}, due AS (${appendDue(t, atOnce, condition)})
    ${scheduleFrom(t, t.box, `SELECT * FROM m WHERE NOT ${atOnce} AND ${condition}`)}`;
}

const isDue = "coalesce(due_at <= statement_timestamp(), true)";

/** The messages of $1 as rows, in their `place`. */
function timed(first: "" | "locked, "): string {
  const columns = "lane, due_at, schedule_key";
  return `${first === "" ? "" : `${locked}, `}m AS MATERIALIZED (
      SELECT ${columns}, ${values.join(", ")}, place
      FROM ${first}ROWS FROM (json_to_recordset($1::json) AS (
          lane integer, due_at timestamptz, schedule_key text, ${fields.join(", ")}))
        WITH ORDINALITY AS m (${columns}, ${names.join(", ")}, place)
    )`;
}

function appendDue({ pending, box }: BoxTables, due: string, condition: string): string {
  return `
      INSERT INTO ${pending} (box, lane, ${names.join(", ")})
      SELECT ${box}, lane, ${names.join(", ")} FROM m WHERE ${due} AND ${numberedAnd(condition)} ORDER BY place
    `;
}

/** The columns as fields of JSON, and what they are made of. */
const fields = messageColumns.map(([name, type]) => `${name} ${type === "bytea" ? "text" : type}`);
const values = messageColumns.map(([name, type]) => (type === "bytea" ? `decode(${name}, 'base64') AS ${name}` : name));

/**
 * Many messages: $1 is a JSON array of objects, their data in base64. The order of the array is that of the positions,
 * since an identity column is filled after the sort.
 */
function appendFrom(t: BoxTables, first: string, condition: string): string {
  return `
    INSERT INTO ${t.pending} (box, lane, ${names.join(", ")})
    SELECT ${t.box}, lane, ${values.join(", ")}
    FROM ${first}ROWS FROM (json_to_recordset($1::json) AS (lane integer, ${fields.join(", ")}))
      WITH ORDINALITY AS m (lane, ${names.join(", ")}, place)
    WHERE ${numberedAnd(condition)}
    ORDER BY place`;
}
