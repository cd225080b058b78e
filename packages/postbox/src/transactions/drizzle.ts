import { type SQL, sql } from "drizzle-orm";
import type { IsolationLevel, TransactionLibrary } from "../store.js";
import { defineTransactions } from "./define-transactions.js";
import { type ClientState, isClient, whyNotOpen } from "./open-transaction.js";

/** What is needed of a Drizzle transaction; those of `drizzle-orm/node-postgres` and `drizzle-orm/postgres-js` have it. */
export interface DrizzleTransaction {
  execute(query: SQL): PromiseLike<DrizzleResult>;
  rollback(): never;
}

/** That of `pg`, or that of Postgres.js, which is an array. */
type DrizzleResult =
  | { readonly rows: Record<string, unknown>[]; readonly rowCount: number | null }
  | (readonly Record<string, unknown>[] & { readonly count: number });

/** What is needed of a Drizzle database. */
export interface DrizzleDatabase<Tx extends DrizzleTransaction> {
  transaction<R>(work: (tx: Tx) => Promise<R>, config?: { isolationLevel?: IsolationLevel }): Promise<R>;
}

/**
 * Transactions of Drizzle on `pg` or Postgres.js: the handle is what `db.transaction` hands to its function, also that of a
 * nested one.
 *
 * ```ts
 * const store = postgresStore({ pool, transactions: drizzle(db) });
 * ```
 */
export function drizzle<Tx extends DrizzleTransaction>(db: DrizzleDatabase<Tx>): TransactionLibrary<Tx> {
  return defineTransactions<Tx>({
    name: "drizzle",
    rightCall:
      "pass the tx of `db.transaction(async (tx) => …)` or of store.transaction((tx) => …), while its function runs",

    look(tx) {
      // Only a transaction can be rolled back; `db` itself has the same queries, but each commits on its own.
      const { rollback, execute, session } = (tx ?? {}) as Partial<Record<string, unknown>>;
      if (typeof rollback !== "function" || typeof execute !== "function" || session === undefined) {
        return { not: "it is none of Drizzle; db runs each statement outside of yours" };
      }
      const client = clientOf(tx);
      return client === undefined ? "perhaps" : (whyNotOpen(client) ?? "open");
    },

    async query(tx, text, params) {
      const client = clientOf(tx);
      if (client !== undefined) {
        // Its own call waits before it sends: what was open when looked at may be rolled back by then.
        const { rows, rowCount } = await client.query(text, [...params]);
        return { rows, rowCount: rowCount ?? 0 };
      }
      const result = await tx.execute(withParams(text, params));
      if ("count" in result) return { rows: result, rowCount: result.count };
      return { rows: result.rows, rowCount: result.rowCount ?? 0 };
    },

    async begin(work, { isolation }) {
      let client: DrizzleClient | undefined;
      try {
        return await db.transaction((tx) => {
          client = clientOf(tx);
          // Drizzle does not listen: a connection that breaks between two statements would end the process.
          client?.on("error", ignore);
          return work(tx);
        }, isolation && { isolationLevel: isolation });
      } finally {
        client?.removeListener("error", ignore);
      }
    },
  });
}

/** Drizzle takes raw text without parameters only, so each `$n` becomes one of its own. For our statements only. */
function withParams(text: string, params: readonly unknown[]): SQL {
  const chunks = text
    .split(/(\$\d+)/)
    .map((part) => (/^\$\d+$/.test(part) ? sql`${sql.param(params[Number(part.slice(1)) - 1])}` : sql.raw(part)));
  return sql.join(chunks);
}

interface DrizzleClient extends ClientState {
  query(text: string, params: unknown[]): Promise<{ rows: Record<string, unknown>[]; rowCount: number | null }>;
  on(event: "error", listener: () => void): unknown;
  removeListener(event: "error", listener: () => void): unknown;
}

/** The `pg` client under a transaction. Drizzle keeps it to itself, so everything here works without it as well. */
function clientOf(tx: unknown): DrizzleClient | undefined {
  const client = (tx as { readonly session?: { readonly client?: unknown } }).session?.client;
  return isClient(client) ? (client as DrizzleClient) : undefined;
}

function ignore(): void {}
