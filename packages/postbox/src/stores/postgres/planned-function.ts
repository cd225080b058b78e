/*
 * The relay's statements are functions of the schema. A plan made from stale statistics can be a scan of the whole
 * table, and the statistics of an outbox are always stale: the table is empty whenever autovacuum visits it. So each
 * function fixes its planner settings, accesses tables by key only, and is planned once per session, even behind a
 * pooler that keeps no prepared statements.
 */

/**
 * With these settings, rows can only be reached by an index whose leading columns the statement names, or by ctid.
 * Nested loops are off: where they are needed (LATERAL) there is no alternative, and joins of rows already found are
 * hashed.
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

/** The clauses of a function definition that fix its plans. */
export const plannedByKey = Object.entries(settings)
  .map(([name, value]) => `SET ${name} = ${value}`)
  .join(" ");

/** How a function is created and called. */
export interface PlannedFunction {
  readonly create: string;
  readonly call: string;
}

export interface FunctionParts {
  /** The qualified name, quoted. */
  readonly name: string;
  /** The types of $1, $2 … */
  readonly params: readonly string[];
  /** The result columns. */
  readonly returns: readonly string[];
  readonly declare?: string;
  /** The statements between BEGIN and END. An unqualified name is a column, never a variable. */
  readonly body: string;
}

/** Makes a function that waits at most five seconds for a lock, so that it ends even if its client is gone. */
export function plannedFunction({ name, params, returns, declare = "", body }: FunctionParts): PlannedFunction {
  // Some of the names are SQL keywords.
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
    // Every parameter has its type, because a library may send all of them as text.
    call: `SELECT * FROM ${name}(${params.map((type, index) => `$${index + 1}::${type}`).join(", ")})`,
  };
}
