import type { IsolationLevel, TransactionLibrary } from "../store.js";
import { defineTransactions } from "./define-transactions.js";
import { beginSafely, rightCall } from "./safe-postgres-js.js";

/** What is needed of a transaction of Postgres.js; nothing but its `TransactionSql` has it. */
export interface PostgresJsTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: it takes whatever it can send.
  unsafe(text: string, params?: any[]): PromiseLike<readonly Record<string, unknown>[] & { readonly count: number }>;
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  typed: (value: string, type: number) => any;
  // biome-ignore lint/suspicious/noExplicitAny: its own overloads are not needed, only that it is there.
  savepoint: (...args: any[]) => unknown;
}

/** What is needed of Postgres.js itself. */
export interface PostgresJsDatabase<Tx extends PostgresJsTransaction> {
  begin<R>(options: string, work: (sql: Tx) => R | Promise<R>): Promise<unknown>;
  readonly options?: { readonly max?: number };
}

/** The number that PostgreSQL has for it. */
const textType = 25;

const levels: Readonly<Record<IsolationLevel, string>> = {
  "read committed": "isolation level read committed",
  "repeatable read": "isolation level repeatable read",
  serializable: "isolation level serializable",
};

/**
 * Transactions of Postgres.js (`postgres`): the handle is the `sql` that `sql.begin` or `sql.savepoint` hands to its function.
 *
 * ```ts
 * const store = postgresStore({ pool, transactions: postgresJs(sql) });
 * ```
 */
export function postgresJs<Tx extends PostgresJsTransaction>(
  sql: PostgresJsDatabase<Tx>,
): TransactionLibrary<Tx, "postgres"> {
  return defineTransactions<Tx>({
    name: "postgres.js",
    rightCall,
    maxTransactions: () => sql.options?.max,
    look(tx) {
      // Nothing tells whether it has ended; its statements would still run, on a connection that may be another's by now.
      const known = (tx ?? {}) as Partial<PostgresJsTransaction>;
      if (typeof known.savepoint === "function" && typeof known.unsafe === "function") return "perhaps";
      return { not: "sql itself runs each statement on any connection, outside of your transaction" };
    },
    async query(tx, text, params) {
      // What is cast to JSON in the statement, it would make JSON of once more.
      const values = params.map((value) => (typeof value === "string" ? tx.typed(value, textType) : value));
      const rows = await tx.unsafe(text, values);
      return { rows, rowCount: rows.count };
    },
    begin: async <R>(work: (tx: Tx) => Promise<R>, { isolation }: { readonly isolation?: IsolationLevel }) =>
      (await beginSafely<Tx>(
        (inside) => sql.begin(isolation === undefined ? "" : levels[isolation], inside),
        work,
      )) as R,
  });
}
