/*
 * Lookups by key that do not depend on the planner's estimates. An outbox that keeps up is empty whenever autovacuum
 * visits it, so its statistics say nothing about a backlog. With such statistics, a join may read the table once per
 * key. If two indexes start with the lane, the planner may choose either and scan the whole lane.
 */

/**
 * The settings of an operator's transaction. An index is scanned in its order, even if statistics or settings favour
 * another plan. Run it after BEGIN; the settings end with the transaction.
 */
export const planByKey: string = [
  // So that no function or operator of a user can be chosen because it fits the argument types better than the server's
  // own.
  "SET LOCAL search_path = pg_catalog, pg_temp",
  ...["seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort", "incremental_sort"].map(
    (way) => `SET LOCAL enable_${way} = off`,
  ),
  ...["indexscan", "indexonlyscan", "tidscan", "nestloop"].map((way) => `SET LOCAL enable_${way} = on`),
  "SET LOCAL plan_cache_mode = force_custom_plan",
  // Before version 18, a plan node that is disabled but required has such a high cost that the server would use JIT.
  "SET LOCAL jit = off",
].join("; ");

/** A table, and the columns of one of its indexes, by which a row is found. */
export interface Key {
  readonly table: string;
  /** The compared columns, in index order: columns of `x`, or expressions on them. */
  readonly columns: readonly string[];
  /** The index columns after those. Of several rows with the same key, the first in this order is found. */
  readonly last?: string;
  /** The condition of a partial index. */
  readonly where?: string;
}

/**
 * A query for the row whose columns have these values. It takes the first row from these values on, which only the
 * index in exactly that order can find without sorting, and then compares. With an equality condition, the planner
 * could take any index that shares a column.
 */
export function rowWith(select: string, { table, columns, last, where }: Key, values: readonly string[]): string {
  const order = [...columns, ...(last === undefined ? [] : [last])].join(", ");
  const same = columns.map((column, at) => `${column} = ${values[at]}`).join(" AND ");
  return `SELECT ${select} FROM (
          SELECT x.ctid, x.* FROM ${table} x
          WHERE (${columns.join(", ")}) >= (${values.join(", ")})${where === undefined ? "" : ` AND x.${where}`}
          ORDER BY ${order} LIMIT 1) AS x WHERE ${same}`;
}

/** Whether a row of the key's table has the column values of one of the `items`. Rows are read by ctid. */
export function isAmong(items: string, key: Key, values: readonly string[], condition = "true"): string {
  return `ctid = ANY (ARRAY(SELECT r.ctid FROM ${items} CROSS JOIN LATERAL (${rowWith("x.ctid", key, values)}) AS r
        WHERE ${condition}))`;
}
