import type { GuardedStatement } from "../../store.js";
import { guardedStatement } from "../../transactions/guarded-statement.js";
import { isOld, memory, memoryColumns, since } from "./inbox-sql.js";
import { inboxTable, tablesNamed } from "./names.js";
import { plannedByKey } from "./planned-function.js";

/*
 * The statements in every handler's transaction, as functions of the schema. A user's library does not prepare
 * statements, and planning these takes longer than running them. A function keeps its plans for the whole session, also
 * behind a pooler.
 */

const body = `LANGUAGE plpgsql ${plannedByKey} AS $function$`;
const end = "$function$;";
/** The default lock timeout of an inbox. */
const usualWait = "5000ms";

export function createInboxFunctions(schema: string): string {
  return remember(schema) + handled(schema);
}

/**
 * Remembers a message, or inserts nothing if it is known already; a plain INSERT would abort the transaction. If
 * another open transaction has inserted the same message, it waits for that transaction to end.
 *
 * $1 to $11 are the columns, $12 the data to remember, $13 the message's time in ms, $14 the retention, $15 the lock
 * timeout, which overrides the session's. A setting attached to a function ends with the call, however the function
 * changes it, and costs a tenth of setting and restoring it.
 *
 * A separate statement after the INSERT checks whether the message is too old. If retention has just deleted the id,
 * the INSERT succeeds, but this statement sees how far retention has come, which is committed before any row is
 * deleted.
 */
function remember(schema: string): string {
  return `
    CREATE FUNCTION "${schema}".inbox_remember(${memoryColumns.map(([, type]) => type).join(", ")}, bytea,
      double precision, double precision, text) RETURNS text
    LANGUAGE plpgsql ${plannedByKey} SET lock_timeout = '${usualWait}' AS $function$
    DECLARE
      "time" CONSTANT timestamptz := to_timestamp($13 / 1000);
      remembered text := 'new';
    BEGIN
      IF $15 <> '${usualWait}' THEN
        PERFORM set_config('lock_timeout', $15, true);
      END IF;
      INSERT INTO ${inboxTable(schema)} (${memory}, data, since, processed_at)
      VALUES (${memoryColumns.map((_, index) => `$${index + 1}`).join(", ")}, $12, ${since('"time"')}, clock_timestamp())
      ON CONFLICT DO NOTHING;
      IF NOT FOUND THEN
        remembered := 'known';
      ELSIF ${isOld(schema, "$1", '"time"', "$14")} THEN
        DELETE FROM ${inboxTable(schema)} m WHERE m.consumer = $1 AND m.id = $2;
        remembered := 'too-old';
      END IF;
      RETURN remembered;
    END
    ${end}
`;
}

/**
 * Removes the handled row $3 of lane $1 from the box $9, if $2 is still the lane's epoch. As in a settle, the lane is
 * locked against a take-over until the transaction ends. $4 is the row's turn, if it waits. $5 to $7 are the consumer,
 * the message and its handler. $8 is the message's own id, because its position may belong to another row after a
 * failover.
 *
 * A hold that only this row can wait under ends with it. The hold of a key is left to a settle, which sees what else
 * waits.
 */
function handled(schema: string): string {
  const t = tablesNamed(schema, "inbox");
  const read = "r.box = $9 AND r.lane = $1 AND r.position = $3 AND r.id IS NOT DISTINCT FROM $8";
  return `
    CREATE FUNCTION "${schema}".inbox_handled(${handledTypes.join(", ")})
      RETURNS boolean ${body}
    DECLARE
      held text;
    BEGIN
      PERFORM FROM ${t.lane} l WHERE l.box = $9 AND l.lane = $1 AND l.epoch = $2 FOR KEY SHARE;
      IF NOT FOUND THEN
        RETURN false;
      END IF;
      IF $4 IS NULL THEN
        DELETE FROM ${t.pending} r WHERE ${read};
      ELSE
        DELETE FROM ${t.wait} r WHERE ${read} AND r.turn = $4
        RETURNING r.hold_key INTO held;
      END IF;
      IF NOT FOUND THEN
        RETURN false;
      END IF;
      IF left(held, 1) = chr(1) THEN
        DELETE FROM ${t.hold} h WHERE h.box = $9 AND h.lane = $1 AND h.key = held;
      END IF;
      UPDATE ${inboxTable(schema)} m SET processed_at = clock_timestamp(), handler = $7 WHERE m.consumer = $5 AND m.id = $6;
      RETURN true;
    END
    ${end}
`;
}

/** The call. Every parameter has its type, because a library may send all of them as text. */
export function rememberSql(schema: string): GuardedStatement {
  const types = [...memoryColumns.map(([, type]) => type), "bytea", "double precision", "double precision", "text"];
  return guardedStatement(
    (condition) => `SELECT "${schema}".inbox_remember(${params(types)}) AS remembered WHERE ${condition}`,
  );
}

export function handledSql(schema: string): GuardedStatement {
  return guardedStatement(
    (condition) => `SELECT "${schema}".inbox_handled(${params(handledTypes)}) AS handled WHERE ${condition}`,
  );
}

const handledTypes = ["integer", "bigint", "bigint", "integer", "text", "text", "text", "text", "integer"];

function params(types: readonly string[]): string {
  return types.map((type, index) => `$${index + 1}::${type}`).join(", ");
}
