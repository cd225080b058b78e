import { guardedStatement } from "../../transactions/guarded-statement.js";
import { messageColumns, usualColumns } from "./message-columns.js";
import type { BoxTables } from "./names.js";
import { cancelSql, scheduleFrom } from "./schedule-sql.js";

/* The statements in the user's transaction. */

const names = messageColumns.map(([name]) => name);
const oneMessage = ["$1::integer", ...messageColumns.map(([, type], index) => `$${index + 2}::${type}`)];

/**
 * Always true, but assigns the transaction its number before the row gets its position. A reader that sees a higher
 * position then finds this transaction among the open ones, and knows that a lower position may still appear.
 */
export const numbered = "pg_current_xact_id() IS NOT NULL";

/** A condition on the whole statement: the transaction has its number and is the user's. */
const numberedAnd = (condition: string) => `${numbered} AND ${condition}`;

/**
 * The statements that append to a box: one message, one with the usual columns, many; and each of them in turn with
 * other appends to the same keys.
 */
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
 * Appends one message: $1 is its lane, then its columns follow in order. Parameters have no casts except JSON, because
 * the columns determine their types and there is less to parse; some libraries send JSON as text, which needs the cast.
 * `lane` comes before `position`, so that the transaction gets its number first.
 */
function appendOneSql(t: BoxTables, columns: typeof messageColumns, condition: string): string {
  const params = columns.map(([, type], index) => `$${index + 2}${type === "jsonb" ? "::jsonb" : ""}`);
  return `
    INSERT INTO ${t.pending} (box, lane, ${columns.map(([name]) => name).join(", ")})
    VALUES (${t.box}, CASE WHEN ${numberedAnd(condition)} THEN $1::integer END, ${params.join(", ")})`;
}

/**
 * The same, after taking the lock in the last parameter. The row is selected from the lock, so it gets its position
 * only after the lock was acquired.
 */
function appendOneInTurnSql(t: BoxTables, condition: string): string {
  return `
    WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock($${oneMessage.length + 1}::bigint))
    INSERT INTO ${t.pending} (box, lane, ${names.join(", ")})
    SELECT ${t.box}, ${oneMessage.join(", ")} FROM locked WHERE ${numberedAnd(condition)}`;
}

/**
 * Appends many, as `appendFrom`, after taking the locks in $2, a JSON array, in its order and before any position is
 * drawn.
 */
function appendManyInTurnSql(t: BoxTables, condition: string): string {
  return `
    WITH ${locked}
    ${appendFrom(t, "locked, ", condition)}`;
}

const locked = `locked AS MATERIALIZED (
      SELECT count(pg_advisory_xact_lock(number::bigint)) FROM json_array_elements_text($2::json) AS number)`;

/**
 * Appends many, some of which have a `due_at`. Those that are due are appended as usual, the others are scheduled. One
 * reading of the database's clock decides for all, so that no message counts as both.
 */
function appendTimedSql(t: BoxTables, first: "" | "locked, ", condition: string): string {
  return `
    WITH ${timed(first)}, due AS (${appendDue(t, isDue, condition)})
    INSERT INTO ${t.scheduled} (box, lane, due_at, ${names.join(", ")})
    SELECT ${t.box}, lane, due_at, ${names.join(", ")} FROM m WHERE NOT ${isDue} AND ${condition} ORDER BY place`;
}

/**
 * Appends many, some of which have a schedule key and are scheduled even if they are due. It is a separate statement,
 * because a role that never replaces needs no right to do so.
 */
function appendKeyedSql(t: BoxTables, first: "" | "locked, ", condition: string): string {
  const atOnce = `(${isDue} AND schedule_key IS NULL)`;
  return `
    WITH ${timed(first)}, due AS (${appendDue(t, atOnce, condition)})
    ${scheduleFrom(t, t.box, `SELECT * FROM m WHERE NOT ${atOnce} AND ${condition}`)}`;
}

const isDue = "coalesce(due_at <= statement_timestamp(), true)";

/** The messages of $1 as rows, with their `place`. */
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

/** The columns as JSON fields, and the expressions that convert them. */
const fields = messageColumns.map(([name, type]) => `${name} ${type === "bytea" ? "text" : type}`);
const values = messageColumns.map(([name, type]) => (type === "bytea" ? `decode(${name}, 'base64') AS ${name}` : name));

/**
 * Appends many messages: $1 is a JSON array of objects with their data in base64. Positions follow the order of the
 * array, because an identity column is filled after the sort.
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
