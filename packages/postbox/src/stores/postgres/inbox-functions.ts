import type { GuardedStatement } from "../../store.js";
import { guardedStatement } from "../../transactions/guarded-statement.js";
import { isOld, memory, memoryColumns, since } from "./inbox-sql.js";
import { inboxTable, tablesNamed } from "./names.js";
import { plannedByKey } from "./planned-function.js";

/*
 * What runs in every handler's transaction, as functions of the schema: a user's library prepares no statement there, and to plan
 * these takes longer than to run them. A function's plans are kept for as long as the session, also behind a pooler.
 */

const body = `LANGUAGE plpgsql ${plannedByKey} AS $function$`;
const end = "$function$;";
/** What an inbox waits by default. */
const usualWait = "5000ms";

export function createInboxFunctions(schema: string): string {
  return remember(schema) + handled(schema);
}

/**
 * Remembers a message, or inserts nothing when it is known already: a plain INSERT would abort the transaction then. While another
 * transaction has the same one open, it waits for that one's end. $1 to $11 are the columns, $12 the data to be remembered,
 * $13 the message's time in ms, $14 how long it is remembered, $15 how long to wait, whatever the session says: a setting that is
 * attached to a function ends with it, however it was changed inside, and costs a tenth of what it takes to set it and to put it back.
 *
 * Whether it is too old is asked after the INSERT, by a statement of its own: where retention has just deleted the id, the INSERT
 * succeeds, and this statement sees how far retention has come, which is committed before anything is deleted.
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
 * Takes the row $3 of lane $1 out of the box $9, as handled, if $2 is still the lane's epoch: as in a settle, the lane is locked against
 * a take-over until the transaction ends. $4 is its turn, if it waits; $5 to $7 say whose message was handled, which, and by what handler; $8 is the
 * message's own id, since its position may be another's after a failover.
 * A hold that only this row can stand under goes with it; that of a key is for a settle to end, which sees who else waits.
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

/** The call: every parameter with its type, since a library may send them all as text. */
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
