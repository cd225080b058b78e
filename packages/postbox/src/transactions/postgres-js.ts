import type { IsolationLevel, TransactionLibrary } from "../store.js";
import { defineTransactions } from "./define-transactions.js";
import { beginSafely, rightCall } from "./safe-postgres-js.js";

/** The part of a Postgres.js transaction that Postbox uses. Only `TransactionSql` has all of it. */
export interface PostgresJsTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: it accepts every value that it can send.
  unsafe(text: string, params?: any[]): PromiseLike<readonly Record<string, unknown>[] & { readonly count: number }>;
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  typed: (value: string, type: number) => any;
  // biome-ignore lint/suspicious/noExplicitAny: only its presence matters, not its overloads.
  savepoint: (...args: any[]) => unknown;
}

/** The part of a Postgres.js `sql` that Postbox uses. */
export interface PostgresJsDatabase<Tx extends PostgresJsTransaction> {
  begin<R>(options: string, work: (sql: Tx) => R | Promise<R>): Promise<unknown>;
  readonly options?: { readonly max?: number };
}

/** The OID of the type `text`. */
const textType = 25;

const levels: Readonly<Record<IsolationLevel, string>> = {
  "read committed": "isolation level read committed",
  "repeatable read": "isolation level repeatable read",
  serializable: "isolation level serializable",
};

/**
 * Transactions of Postgres.js (`postgres`). The handle is the `sql` that `sql.begin` or `sql.savepoint` passes to its
 * function.
 *
 * @example
 * ```ts
 * const sql = postgres("postgres://localhost/shop");
 * const store = postgresStore({ pool, transactions: postgresJs(sql) });
 * await sql.begin((tx) => createOutbox(store, { source: "/orders" }).in(tx).publish(OrderPlaced, order));
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
      // A handle does not show that its transaction has ended. Its statements would still run, on a connection that may
      // belong to another transaction by then.
      const known = (tx ?? {}) as Partial<PostgresJsTransaction>;
      if (typeof known.savepoint === "function" && typeof known.unsafe === "function") return "perhaps";
      return { not: "sql itself runs each statement on any connection, outside of your transaction" };
    },
    async query(tx, text, params) {
      // Without the type, Postgres.js would encode strings again for parameters that the statement casts to JSON.
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
