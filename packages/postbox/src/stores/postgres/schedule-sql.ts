import type { GuardedStatement } from "../../store.js";
import { guardedStatement } from "../../transactions/guarded-statement.js";
import { messageColumns } from "./message-columns.js";
import type { BoxTables } from "./names.js";
import { plannedByKey } from "./planned-function.js";

/*
 * Scheduled messages that are replaced and cancelled by type and schedule key. A unique index identifies them, so the
 * locks are row locks: a transaction that writes the same key waits, and a relay skips the row.
 */

const names = messageColumns.map(([name]) => name).join(", ");

/**
 * A type and schedule key is unique within a box. As in create-box.ts, `(box + 0)` keeps this index from competing with
 * the primary key, which starts with the box.
 */
const keyColumns = "(box + 0), type, schedule_key";

/** The index that the statements below use. */
export function createScheduleKeyIndex(scheduled: string): string {
  return `
    CREATE UNIQUE INDEX ON ${scheduled} (${keyColumns}) WHERE schedule_key IS NOT NULL;`;
}

/**
 * Schedules the messages of a query in a box. The query has the columns `lane`, `due_at`, `schedule_key`, those of a
 * message, and `place`. Of several with the same key, the last one is kept; it replaces the one that is scheduled.
 *
 * Positions follow `place`, which decides between messages that are due at the same time. Rows are written in key
 * order, so that two statements with common keys never deadlock.
 */
export function scheduleFrom({ scheduled, scheduledPositions }: ScheduleTables, box: number, query: string): string {
  const written = ["position", "box", "lane", "due_at", "schedule_key", ...messageColumns.map(([name]) => name)];
  const replaced = [...written, "created_at"].map((name) => `${name} = EXCLUDED.${name}`);
  return `
    INSERT INTO ${scheduled} (${written.join(", ")})
    SELECT * FROM (
      SELECT nextval('${scheduledPositions}'), ${box}, lane, due_at, schedule_key, ${names} FROM (
        SELECT * FROM (
          SELECT q.*, max(place) OVER (PARTITION BY type, schedule_key) AS last_place FROM (${query}) AS q
        ) AS q
        WHERE schedule_key IS NULL OR place = last_place
        ORDER BY place
      ) AS q
    ) AS q
    ORDER BY type COLLATE "C", schedule_key COLLATE "C"
    ON CONFLICT (${keyColumns}) WHERE schedule_key IS NOT NULL DO UPDATE SET ${replaced.join(", ")}`;
}

/**
 * Deletes the message with box $1, type $2 and schedule key $3, and returns its id. It searches by key, not by ctid, so
 * it also finds a message that was replaced while the statement waited.
 *
 * It is a function, because a cached plan from a time when the table was empty would scan all of it. It has no
 * `lock_timeout`, because it runs in the user's transaction.
 */
export function createCancelFunction(t: Pick<BoxTables, "scheduled" | "function">): string {
  return `
    CREATE FUNCTION ${t.function("cancel")}(integer, text, text) RETURNS SETOF text
    LANGUAGE plpgsql ${plannedByKey} AS $function$
    BEGIN
      RETURN QUERY
        DELETE FROM ${t.scheduled} m
        WHERE (m.box + 0) = $1 AND m.type = $2 AND m.schedule_key = $3 RETURNING m.id;
    END
    $function$;
`;
}

/** The same for one box: $1 is the type, $2 the schedule key. */
export function cancelSql(t: BoxTables): GuardedStatement {
  return guardedStatement(
    (condition) => `
    SELECT id FROM ${t.function("cancel")}(${t.box}, $1::text, $2::text) AS id WHERE ${condition}`,
  );
}

type ScheduleTables = Pick<BoxTables, "scheduled" | "scheduledPositions">;
