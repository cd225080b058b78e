/*
 * The relay's statements are functions of the schema. A plan that PostgreSQL makes from statistics can turn into a scan of the
 * whole table when the statistics are stale, and an outbox's always are: the table is empty whenever autovacuum looks. So each
 * function fixes the settings it is planned with, reaches tables by their keys only, and is planned once per session, also
 * behind a pooler that keeps no prepared statements.
 */

/**
 * With these settings, the only way to rows of a table is an index whose leading columns the statement names, or a ctid. Nested
 * loops are off because the ones that are needed (LATERAL) have no alternative, while joins of what was already found are hashed.
 */
const settings: Readonly<Record<string, string>> = {
  search_path: "pg_catalog, pg_temp",
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  enable_bitmapscan: "off",
  enable_sort: "off",
  enable_nestloop: "off",
  enable_mergejoin: "off",
  enable_hashjoin: "on",
  enable_indexscan: "on",
  enable_indexonlyscan: "on",
  enable_tidscan: "on",
  enable_material: "on",
  jit: "off",
};

/** The clauses of a function's definition that fix its plans. */
export const plannedByKey = Object.entries(settings)
  .map(([name, value]) => `SET ${name} = ${value}`)
  .join(" ");

/** How a function is created, and how it is called. */
export interface PlannedFunction {
  readonly create: string;
  readonly call: string;
}

export interface FunctionParts {
  /** The schema and name, quoted. */
  readonly name: string;
  /** The types of $1, $2 … */
  readonly params: readonly string[];
  /** The columns that it answers with. */
  readonly returns: readonly string[];
  readonly declare?: string;
  /** What stands between BEGIN and END. A bare name is a column, never a variable. */
  readonly body: string;
}

/** It waits no longer than five seconds for a lock, also if its client is gone. */
export function plannedFunction({ name, params, returns, declare = "", body }: FunctionParts): PlannedFunction {
  // Some of them are words of SQL.
  const columns = returns.map((column) => column.replace(/^\w+/, '"$&"'));
  return {
    create: `
    CREATE FUNCTION ${name}(${params.join(", ")}) RETURNS TABLE (${columns.join(", ")})
    LANGUAGE plpgsql ${plannedByKey} SET lock_timeout = '5s' AS $function$
    #variable_conflict use_column
    DECLARE
      ${declare}
    BEGIN
${body}
    END
    $function$;
`,
    // Every parameter with its type, since a library may send them all as text.
    call: `SELECT * FROM ${name}(${params.map((type, index) => `$${index + 1}::${type}`).join(", ")})`,
  };
}
