import pg, { type Pool } from "pg";

/**
 * What the planner believes about the tables of a schema. Autovacuum leaves "no rows in many pages" in every
 * outbox that keeps up: rows have passed through the pages, and none is left.
 */
const counts = {
  "never vacuumed": "reltuples = -1, relpages = 0",
  "one row in a million pages": "reltuples = 1, relpages = 1000000",
  "no rows in many pages": "reltuples = 0, relpages = greatest(relpages, 1000)",
  "a billion rows in one page": "reltuples = 1000000000, relpages = 1",
} as const;

/**
 * What the planner believes about the columns. No ANALYZE sees a unique column with one value, so that stays as it is.
 */
const columns = {
  "no statistics": undefined,
  "one value": "stadistinct = CASE stadistinct WHEN -1 THEN -1 ELSE 1 END, stanullfrac = 0",
  "nulls only": "stadistinct = 0, stanullfrac = 1",
  "all values differ": "stadistinct = -1, stanullfrac = 0",
} as const;

interface ForgedStatistics {
  readonly counts: keyof typeof counts;
  readonly columns: keyof typeof columns;
}

/** Every combination that `forgeStatistics` can make. */
export const forgedStatistics: readonly ForgedStatistics[] = keysOf(counts).flatMap((count) =>
  keysOf(columns).map((column) => ({ counts: count, columns: column })),
);

/**
 * Settings of a session that push the planner towards scans. No shape of a statement withstands `enable_indexscan =
 * off`.
 */
export const hostileSettings: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "the defaults": {},
  "generic plans": { plan_cache_mode: "force_generic_plan" },
  "expensive random pages": { random_page_cost: "40" },
  "no nested loops": { enable_nestloop: "off" },
  "no hash or merge joins": { enable_hashjoin: "off", enable_mergejoin: "off" },
};

/**
 * Makes the planner believe this about all tables and indexes of a schema, until autovacuum or ANALYZE writes the
 * truth: switch autovacuum off for these tables. Needs a superuser.
 */
export async function forgeStatistics(pool: Pool, schema: string, forged: ForgedStatistics): Promise<void> {
  const relations = `SELECT oid FROM pg_class WHERE relnamespace = '${schema}'::regnamespace AND relkind IN ('r', 'p', 'i', 'I')`;
  const column = columns[forged.columns];
  if (column === undefined) await pool.query(`DELETE FROM pg_statistic WHERE starelid IN (${relations})`);
  else {
    const tables = await pool.query(
      `SELECT oid::regclass::text AS name FROM pg_class WHERE relnamespace = '${schema}'::regnamespace AND relkind = 'r'`,
    );
    await pool.query(`ANALYZE ${tables.rows.map(({ name }) => name).join(", ")}`);
    const kinds = [1, 2, 3, 4, 5].map(
      (n) => `stakind${n} = 0, staop${n} = 0, stanumbers${n} = NULL, stavalues${n} = NULL`,
    );
    await pool.query(`UPDATE pg_statistic SET ${column}, ${kinds.join(", ")} WHERE starelid IN (${relations})`);
  }
  await pool.query(`UPDATE pg_class SET ${counts[forged.counts]} WHERE oid IN (${relations})`);
}

/** How PostgreSQL ran one statement. */
interface RanStatement {
  readonly text: string;
  /** Pages that it touched, whether they were in memory or not. */
  readonly buffers: number;
  /** Pages of each table or index, by the scans of it. */
  readonly scans: readonly {
    readonly kind: string;
    readonly of: string;
    readonly buffers: number;
    readonly loops: number;
  }[];
}

/**
 * A pool whose sessions report how each statement ran, also those inside of functions and transactions. `ranBy` answers
 * with the statements that `work` ran on this pool; one `work` at a time. Needs a superuser, and auto_explain.
 */
export interface WatchedPool {
  readonly pool: Pool;
  ranBy(work: () => Promise<unknown>): Promise<readonly RanStatement[]>;
}

export function watchedPool(url: string, settings: Readonly<Record<string, string>> = {}): WatchedPool {
  const all = {
    session_preload_libraries: "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
    "auto_explain.log_nested_statements": "on",
    jit: "off",
    ...settings,
  };
  const options = Object.entries(all).map(([name, value]) => `-c ${name}=${value}`);
  const pool = new pg.Pool({ connectionString: url, max: 4, options: options.join(" ") });
  let ran: RanStatement[] = [];
  pool.on("connect", (client) => {
    // A notice comes before the answer of its statement: when that has come, so have all of them.
    client.on("notice", ({ message }) => {
      const plan = /^duration: .* plan:\n(\{.*\})$/s.exec(message ?? "");
      if (plan !== null) ran.push(ranFrom(JSON.parse(plan[1] as string)));
    });
  });
  return {
    pool,
    async ranBy(work) {
      ran = [];
      await work();
      return ran;
    },
  };
}

interface Node {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Actual Loops": number;
  readonly "Shared Hit Blocks"?: number;
  readonly "Shared Read Blocks"?: number;
  readonly Plans?: readonly Node[];
}

function ranFrom(explained: { readonly "Query Text": string; readonly Plan: Node }): RanStatement {
  const nodes = nodesOf(explained.Plan);
  return {
    text: explained["Query Text"],
    buffers: nodes.reduce((sum, node) => sum + ownBuffers(node), 0),
    scans: nodes
      .filter((node) => node["Actual Loops"] > 0 && (node["Relation Name"] ?? node["Index Name"]) !== undefined)
      .map((node) => ({
        kind: node["Node Type"],
        of: node["Index Name"] ?? node["Relation Name"] ?? "",
        buffers: ownBuffers(node),
        loops: node["Actual Loops"],
      })),
  };
}

function nodesOf(node: Node): Node[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)];
}

/** A node's count includes those below it, but for a CTE that runs after the node has ended. */
function ownBuffers(node: Node): number {
  const below = (node.Plans ?? []).reduce((sum, child) => sum + buffersOf(child), 0);
  return Math.max(0, buffersOf(node) - below);
}

function buffersOf(node: Node): number {
  return (node["Shared Hit Blocks"] ?? 0) + (node["Shared Read Blocks"] ?? 0);
}

function keysOf<T extends object>(object: T): readonly (keyof T)[] {
  return Object.keys(object) as (keyof T)[];
}
