import pg, { type ClientBase, type Pool, type QueryConfig } from "pg";
import type { Store, TransactionLibrary } from "postbox";
import { postgresStore } from "postbox/postgres";

/** What a statement did to the tables, as PostgreSQL itself counted it. */
interface Plan {
  /** Tables that were read from end to end. */
  readonly readWhole: readonly string[];
  readonly indexes: readonly string[];
  /** Rows that were looked at, whether they fitted or not. */
  readonly visited: number;
}

/**
 * A store that changes nothing: each statement is explained and rolled back. `plansOf` tells how PostgreSQL ran what
 * `work` asked for last: prepared, and six times, since from the sixth time on a plan may be one for any parameters.
 */
export interface ExplainingStore {
  plansOf(work: (store: Store<ClientBase>, tx: ClientBase) => Promise<unknown>): Promise<readonly Plan[]>;
}

export function explainingStore(pool: Pool, schema: string): ExplainingStore {
  let plans: readonly Plan[] = [];

  async function explain(text: string, params: readonly unknown[] = []) {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      await client.query(`PREPARE explained AS ${text}`);
      const args = params.length === 0 ? "" : `(${params.map(literal).join(", ")})`;
      const explained: Plan[] = [];
      for (let time = 1; time <= 6; time++) {
        await client.query("SAVEPOINT before");
        const { rows } = await client.query(`EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE explained ${args}`);
        await client.query("ROLLBACK TO before");
        explained.push(planFrom(nodesOf(rows[0]["QUERY PLAN"][0].Plan)));
      }
      plans = explained;
      return await client.query(text, params as unknown[]);
    } finally {
      await client.query("ROLLBACK; DEALLOCATE ALL");
      client.release();
    }
  }

  const transactions: TransactionLibrary<ClientBase> = {
    name: "explaining",
    executor: () => async (text, params) => {
      const { rows, rowCount } = await explain(text, params);
      return { rows, rowCount: rowCount ?? 0 };
    },
    begin: () => Promise.reject(new Error("every statement is explained on its own")),
  };
  const query = (statement: string | QueryConfig, params?: readonly unknown[]) =>
    typeof statement === "string" ? explain(statement, params) : explain(statement.text, statement.values);
  const explaining = { connect: () => pool.connect(), query, on: () => {}, listenerCount: () => 1 };
  const store = postgresStore({ pool: explaining as unknown as Pool, transactions, schema });
  return {
    async plansOf(work) {
      await work(store, undefined as unknown as ClientBase);
      return plans;
    },
  };
}

interface Node {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Conflict Arbiter Indexes"?: readonly string[];
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Rows Removed by Filter"?: number;
  readonly "Rows Removed by Index Recheck"?: number;
  readonly "Rows Removed by Join Filter"?: number;
  readonly Plans?: readonly Node[];
}

/** A node and all below it, without what was planned and never run. */
function nodesOf(node: Node): Node[] {
  const below = (node.Plans ?? []).flatMap(nodesOf);
  return node["Actual Loops"] > 0 ? [node, ...below] : below;
}

function planFrom(nodes: readonly Node[]): Plan {
  const scans = nodes.filter((node) => node["Node Type"].endsWith("Scan") && node["Relation Name"] !== undefined);
  const removed = (node: Node) =>
    (node["Rows Removed by Filter"] ?? 0) +
    (node["Rows Removed by Index Recheck"] ?? 0) +
    (node["Rows Removed by Join Filter"] ?? 0);
  const sum = (of: readonly Node[], rows: (node: Node) => number) =>
    of.reduce((total, node) => total + rows(node) * node["Actual Loops"], 0);
  return {
    readWhole: scans.filter((node) => node["Node Type"] === "Seq Scan").map((node) => node["Relation Name"] ?? ""),
    indexes: nodes.flatMap((node) => node["Conflict Arbiter Indexes"] ?? node["Index Name"] ?? []),
    visited: Math.round(sum(scans, (node) => node["Actual Rows"]) + sum(nodes, removed)),
  };
}

function literal(value: unknown): string {
  if (value === null || value === undefined) return "NULL";
  if (value instanceof Uint8Array) return `'\\x${Buffer.from(value).toString("hex")}'`;
  return pg.escapeLiteral(Array.isArray(value) ? arrayText(value) : String(value));
}

function arrayText(values: readonly unknown[]): string {
  const texts = values.map((value) => (value === null ? "NULL" : `"${String(value).replace(/["\\]/g, "\\$&")}"`));
  return `{${texts.join(",")}}`;
}
