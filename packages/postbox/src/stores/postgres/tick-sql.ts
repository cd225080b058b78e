import type { GuardedStatement } from "../../store.js";
import { guardedStatement } from "../../transactions/guarded-statement.js";
import { scheduleTable } from "./names.js";
import { type PlannedFunction, plannedFunction } from "./planned-function.js";

/* The ticks of schedules: one row per schedule, which a claim locks. */

/** Times are whole milliseconds, so that a program compares exactly what it has read. */
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
 * $1 is the name, $2 the tick to claim from, $3 the tick to claim; NULL only reads. The last statement sees what other
 * transactions committed while an earlier statement waited for them.
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
