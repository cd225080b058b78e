import type { ClientBase } from "pg";
import { PostboxError } from "../../errors.js";
import { reasonOf } from "../../internal/reason-of.js";
import type { TransactionLibrary } from "../../store.js";
import type { AdminRow } from "./admin-records.js";
import { planByKey } from "./by-key.js";
import type { StatementRunner } from "./run-statement.js";
import { type SchemaCheck, schemaError } from "./schema-check.js";

type Query = (text: string, params: readonly unknown[]) => Promise<readonly AdminRow[]>;

/** How the administration reaches the database. */
export interface AdminConnection {
  /** Checks the schema, then does the work. Its failure names `what` could not be done. */
  guarded<R>(what: string, work: () => Promise<R>): Promise<R>;
  /** A transaction whose statements walk an index, whatever the statistics say. */
  inTransaction<R>(work: (client: ClientBase) => Promise<R>): Promise<R>;
  /** Runs everything that `work` queries in one guarded transaction on one connection. */
  looking<R>(what: string, work: (query: Query) => Promise<R>): Promise<R>;
  /** Runs one statement in a guarded transaction. */
  look(what: string, ...statement: Parameters<Query>): ReturnType<Query>;
}

export function adminConnection(
  schema: string,
  run: StatementRunner,
  onPool: TransactionLibrary<ClientBase>,
  checkSchema: SchemaCheck,
): AdminConnection {
  async function guarded<R>(what: string, work: () => Promise<R>): Promise<R> {
    try {
      await checkSchema(run);
      return await work();
    } catch (thrown) {
      const error = schemaError(thrown, schema);
      if (error instanceof PostboxError) throw error;
      throw new PostboxError("store-failed", `could not ${what} in Postgres: ${reasonOf(error)}`, { cause: error });
    }
  }

  const inTransaction: AdminConnection["inTransaction"] = (work) =>
    onPool.begin(
      async (client) => {
        await client.query(planByKey);
        return work(client);
      },
      { isolation: "read committed" },
    );

  const looking: AdminConnection["looking"] = (what, work) =>
    guarded(what, () =>
      inTransaction((client) => work(async (text, params) => (await client.query(text, [...params])).rows)),
    );

  return {
    guarded,
    inTransaction,
    looking,
    look: (what, text, params) => looking(what, (query) => query(text, params)),
  };
}
