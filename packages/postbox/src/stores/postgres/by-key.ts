/*
 * Rows by their keys, whatever the planner believes. An outbox that keeps up is empty whenever autovacuum looks, so that its
 * statistics say nothing about the moment when it is not: then a join may read the table once per key, and of two indexes that begin
 * with the lane either may be taken, and the whole lane walked.
 */

/**
 * The settings of a transaction in which operators look and change: an index is walked in its order, although the statistics, or the
 * settings of the server, the role or the session, say that another way is quicker. Behind BEGIN; they end with the transaction.
 */
export const planByKey: string = [
  // Nor does somebody's function or operator decide, that fits the types here better than the server's own.
  "SET LOCAL search_path = pg_catalog, pg_temp",
  ...["seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort", "incremental_sort"].map(
    (way) => `SET LOCAL enable_${way} = off`,
  ),
  ...["indexscan", "indexonlyscan", "tidscan", "nestloop"].map((way) => `SET LOCAL enable_${way} = on`),
  "SET LOCAL plan_cache_mode = force_custom_plan",
  // Before version 18, what is off but needed costs so much that the server would compile the statement.
  "SET LOCAL jit = off",
].join("; ");

/** A table, and the columns of one of its indexes, by which a row is found. */
export interface Key {
  readonly table: string;
  /** All that are compared, as the index has them: columns of `x`, or expressions of these. */
  readonly columns: readonly string[];
  /** What the index has behind them: of several rows with the same key, the first in this order is found. */
  readonly last?: string;
  /** The condition of a partial index. */
  readonly where?: string;
}

/**
 * A query for the row whose columns have these values. It asks for the first one from these values on, which only the index in just that order
 * can tell without sorting, and then compares: asked for equality, the planner may take any index that shares a column.
 */
export function rowWith(select: string, { table, columns, last, where }: Key, values: readonly string[]): string {
  const order = [...columns, ...(last === undefined ? [] : [last])].join(", ");
  const same = columns.map((column, at) => `${column} = ${values[at]}`).join(" AND ");
  return `SELECT ${select} FROM (
          SELECT x.ctid, x.* FROM ${table} x
          WHERE (${columns.join(", ")}) >= (${values.join(", ")})${where === undefined ? "" : ` AND x.${where}`}
          ORDER BY ${order} LIMIT 1) AS x WHERE ${same}`;
}

/** Whether a row of the key's table is one of those whose columns have the values that each of `items` gives: read by its place. */
export function isAmong(items: string, key: Key, values: readonly string[], condition = "true"): string {
  return `ctid = ANY (ARRAY(SELECT r.ctid FROM ${items} CROSS JOIN LATERAL (${rowWith("x.ctid", key, values)}) AS r
        WHERE ${condition}))`;
}
