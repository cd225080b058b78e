import { sameTransaction } from "../../transactions/open-transaction.js";
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

/** And in the user's own transaction. */
const inTransaction = `${numbered} AND ${sameTransaction}`;

/** The same for a single row: `lane` stands before `position`, so that it is known first. */
const numberedLane = `CASE WHEN ${inTransaction} THEN $1::integer END`;

/** The statements that append to a box: one message, one of the usual kind, many; and in turn with others of their keys. */
export function appendSql(t: BoxTables) {
  return {
    one: appendOneSql(t, messageColumns),
    usual: appendOneSql(t, usualColumns),
    oneInTurn: appendOneInTurnSql(t),
    many: appendFrom(t, ""),
    manyInTurn: appendManyInTurnSql(t),
    timed: appendTimedSql(t, ""),
    timedInTurn: appendTimedSql(t, "locked, "),
    keyed: appendKeyedSql(t, ""),
    keyedInTurn: appendKeyedSql(t, "locked, "),
    cancel: cancelSql(t),
  } as const;
}

/**
 * One message: $1 is its lane, then come its columns in order, JSON as text. Without their types, which are those of the
 * columns: there is less to parse. But for JSON, which some libraries send as text, and so has to be cast.
 */
function appendOneSql(t: BoxTables, columns: typeof messageColumns): string {
  const params = columns.map(([, type], index) => `$${index + 2}${type === "jsonb" ? "::jsonb" : ""}`);
  return `
    INSERT INTO ${t.pending} (box, lane, ${columns.map(([name]) => name).join(", ")})
    VALUES (${t.box}, ${numberedLane}, ${params.join(", ")})`;
}

/**
 * The same, behind the lock that the last parameter names. The row comes out of the lock's own, so that it gets its
 * position after the lock was got, however long that took.
 */
function appendOneInTurnSql(t: BoxTables): string {
  return `
    WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock($${oneMessage.length + 1}::bigint))
    INSERT INTO ${t.pending} (box, lane, ${names.join(", ")})
    SELECT ${t.box}, ${oneMessage.join(", ")} FROM locked WHERE ${inTransaction}`;
}

/** Many, as `appendFrom` says, behind the locks that $2 lists, a JSON array; got in its order, and before any position, as above. */
function appendManyInTurnSql(t: BoxTables): string {
  return `
    WITH ${locked}
    ${appendFrom(t, "locked, ")}`;
}

const locked = `locked AS MATERIALIZED (
      SELECT count(pg_advisory_xact_lock(number::bigint)) FROM json_array_elements_text($2::json) AS number)`;

/**
 * Many, some of which have a moment to be sent at, `due_at`: those whose moment has come as ever, the others are scheduled. By the
 * database's clock, and by one reading of it, or one message could be on both sides of now.
 */
function appendTimedSql(t: BoxTables, first: "" | "locked, "): string {
  return `
    WITH ${timed(first)}, due AS (${appendDue(t, isDue)})
    INSERT INTO ${t.scheduled} (box, lane, due_at, ${names.join(", ")})
    SELECT ${t.box}, lane, due_at, ${names.join(", ")} FROM m WHERE NOT ${isDue} AND ${sameTransaction} ORDER BY place`;
}

/**
 * Many, some of which have a schedule key: these are scheduled even if they are due. Apart from the statement above, since a role
 * that replaces nothing needs no right to.
 */
function appendKeyedSql(t: BoxTables, first: "" | "locked, "): string {
  const atOnce = `(${isDue} AND schedule_key IS NULL)`;
  return `
    WITH ${timed(first)}, due AS (${appendDue(t, atOnce)})
    ${scheduleFrom(t, t.box, `SELECT * FROM m WHERE NOT ${atOnce} AND ${sameTransaction}`)}`;
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

function appendDue({ pending, box }: BoxTables, condition: string): string {
  return `
      INSERT INTO ${pending} (box, lane, ${names.join(", ")})
      SELECT ${box}, lane, ${names.join(", ")} FROM m WHERE ${condition} AND ${inTransaction} ORDER BY place
    `;
}

/** The columns as fields of JSON, and what they are made of. */
const fields = messageColumns.map(([name, type]) => `${name} ${type === "bytea" ? "text" : type}`);
const values = messageColumns.map(([name, type]) => (type === "bytea" ? `decode(${name}, 'base64') AS ${name}` : name));

/**
 * Many messages: $1 is a JSON array of objects, their data in base64. The order of the array is that of the positions,
 * since an identity column is filled after the sort.
 */
function appendFrom(t: BoxTables, first: string): string {
  return `
    INSERT INTO ${t.pending} (box, lane, ${names.join(", ")})
    SELECT ${t.box}, lane, ${values.join(", ")}
    FROM ${first}ROWS FROM (json_to_recordset($1::json) AS (lane integer, ${fields.join(", ")}))
      WITH ORDINALITY AS m (lane, ${names.join(", ")}, place)
    WHERE ${inTransaction}
    ORDER BY place`;
}
