import type { GuardedStatement } from "../../store.js";
import { guardedStatement } from "../../transactions/guarded-statement.js";
import { scheduleTable } from "./names.js";
import { type PlannedFunction, plannedFunction } from "./planned-function.js";

/*
 * The ticks of schedules: a row for each, locked by whoever claims a tick of it.
 */

/** Times are whole milliseconds, so that what a program has read of them is what it compares. */
export function createSchedules(schema: string): string {
  return `
    CREATE TABLE ${scheduleTable(schema)} (
      name text PRIMARY KEY,
      id uuid NOT NULL DEFAULT gen_random_uuid(),
      last_tick timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp())
    );
${tickFunction(schema).create}`;
}

/**
 * $1 is the name; $2 and $3 are the tick to claim from and the one to claim, NULL to only ask. The last statement sees what others have
 * committed while one before it waited for them.
 */
function tickFunction(schema: string): PlannedFunction {
  const schedules = scheduleTable(schema);
  const ms = (time: string) => `(extract(epoch FROM ${time}) * 1000)::double precision`;
  return plannedFunction({
    name: `"${schema}"."tick"`,
    params: ["text", "timestamptz", "timestamptz"],
    returns: ["id text", "last_tick double precision", "now double precision", "claimed boolean"],
    declare: "taken boolean := false;",
    body: `
      INSERT INTO ${schedules} (name) VALUES ($1) ON CONFLICT DO NOTHING;
      IF $3 IS NOT NULL THEN
        UPDATE ${schedules} s SET last_tick = $3
        WHERE s.name = $1 AND s.last_tick = $2 AND $3 > $2 AND $3 <= clock_timestamp();
        taken := FOUND;
      END IF;
      RETURN QUERY
        SELECT s.id::text, ${ms("s.last_tick")}, ${ms("clock_timestamp()")}, taken FROM ${schedules} s WHERE s.name = $1;`,
  });
}

/** The same in the user's transaction. */
export function tickSql(schema: string): GuardedStatement {
  const { call } = tickFunction(schema);
  return guardedStatement((condition) => `${call} WHERE ${condition}`);
}
