import { type SQL, sql } from "drizzle-orm";
import type { Executor, IsolationLevel, TransactionLibrary } from "../store.js";
import { type ClientState, commitRolledBack, isClient, notATransaction, requireOpen } from "./open-transaction.js";
import { sqlState } from "./sql-state.js";

const rightCall =
  "pass the tx of `db.transaction(async (tx) => …)` or of store.transaction((tx) => …), while its function runs";

/** What is needed of a Drizzle transaction; those of `drizzle-orm/node-postgres` have it. */
export interface DrizzleTransaction {
  execute(query: SQL): PromiseLike<{ readonly rows: Record<string, unknown>[]; readonly rowCount: number | null }>;
  rollback(): never;
}

/** What is needed of a Drizzle database. */
export interface DrizzleDatabase<Tx extends DrizzleTransaction> {
  transaction<R>(work: (tx: Tx) => Promise<R>, config?: { isolationLevel?: IsolationLevel }): Promise<R>;
}

/**
 * Transactions of Drizzle on `drizzle-orm/node-postgres`: the handle is what `db.transaction` hands to its function,
 * also that of a nested one.
 *
 * ```ts
 * const store = postgresStore({ pool, transactions: drizzle(db) });
 * ```
 */
export function drizzle<Tx extends DrizzleTransaction>(db: DrizzleDatabase<Tx>): TransactionLibrary<Tx> {
  return {
    name: "drizzle",

    executor(tx) {
      // Only a transaction can be rolled back; `db` itself has the same queries, but each commits on its own.
      if (typeof (tx as Partial<DrizzleTransaction> | null)?.rollback !== "function") {
        throw notATransaction("db runs each statement outside of your transaction", rightCall);
      }
      const client = clientOf(tx);
      if (client !== undefined) requireOpen(client, rightCall);
      const execute = executorOf(tx);
      return async (text, params) => {
        if (client !== undefined) requireOpen(client, rightCall);
        return execute(text, params);
      };
    },

    async begin(work, { isolation } = {}) {
      let client: DrizzleClient | undefined;
      let failure: { readonly error: unknown } | undefined;
      try {
        return await db.transaction(
          async (tx) => {
            client = clientOf(tx);
            // Drizzle does not listen: a connection that breaks between two statements would end the process.
            client?.on("error", ignore);
            try {
              const result = await work(tx);
              await requireAlive(tx);
              return result;
            } catch (error) {
              failure = { error };
              throw error;
            }
          },
          isolation === undefined ? undefined : { isolationLevel: isolation },
        );
      } catch (error) {
        // A rollback that fails on a broken connection would otherwise hide what broke.
        throw failure === undefined ? error : failure.error;
      } finally {
        client?.removeListener("error", ignore);
      }
    },
  };
}

/**
 * Drizzle ignores the tag of COMMIT, so a transaction that the database can only roll back would look committed: a
 * statement that does nothing finds out. The client's own word is not enough, since it rejects a failed statement a
 * moment before it hears of the state that this leaves.
 */
async function requireAlive(tx: DrizzleTransaction): Promise<void> {
  try {
    await tx.execute(sql`select 1`);
  } catch (error) {
    throw sqlState(error) === "25P02" ? commitRolledBack(error) : error;
  }
}

/** Drizzle takes raw text without parameters only, so each `$n` becomes one of its own. For our statements only. */
function executorOf(tx: DrizzleTransaction): Executor {
  return async (text, params) => {
    const chunks = text
      .split(/(\$\d+)/)
      .map((part) => (/^\$\d+$/.test(part) ? sql`${sql.param(params[Number(part.slice(1)) - 1])}` : sql.raw(part)));
    const { rows, rowCount } = await tx.execute(sql.join(chunks));
    return { rows, rowCount: rowCount ?? 0 };
  };
}

interface DrizzleClient extends ClientState {
  on(event: "error", listener: () => void): unknown;
  removeListener(event: "error", listener: () => void): unknown;
}

/** The `pg` client under a transaction. Drizzle keeps it to itself, so everything here works without it as well. */
function clientOf(tx: unknown): DrizzleClient | undefined {
  const client = (tx as { readonly session?: { readonly client?: unknown } }).session?.client;
  return isClient(client) ? (client as DrizzleClient) : undefined;
}

function ignore(): void {}
