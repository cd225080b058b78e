import { CompiledQuery, type Kysely, type Transaction } from "kysely";
import type { TransactionLibrary } from "../store.js";
import { defineTransactions as onMysql } from "./define-mysql-transactions.js";
import { type Look, defineTransactions as onPostgres, type TransactionsDefinition } from "./define-transactions.js";
import { classesOf, servedDialect } from "./served-dialect.js";

/**
 * Transactions of Kysely on its dialect for PostgreSQL or MySQL. Its types do not tell the dialect, so a store checks
 * it when it is made. The handle is the `trx` of `db.transaction().execute(…)` or of `db.startTransaction().execute()`.
 *
 * @example
 * ```ts
 * const db = new Kysely<{ orders: { id: string } }>({ dialect: new PostgresDialect({ pool }) });
 * const store = postgresStore({ pool, transactions: kysely(db) });
 * const outbox = createOutbox(store, { source: "/orders" });
 * await db.transaction().execute((tx) => outbox.in(tx).publish(OrderPlaced, order));
 * ```
 */
export function kysely<Schema>(db: Kysely<Schema>): TransactionLibrary<Transaction<Schema>, never> {
  const dialect = servedDialect("kysely", classesOf(db.getExecutor().adapter), ["postgres", "mysql"]);
  const library = dialect === "postgres" ? onPostgres(definitionOn(db)) : onMysql(definitionOn(db));
  return library as TransactionLibrary<Transaction<Schema>, never>;
}

/** Kysely passes on the placeholders of each dialect. */
function definitionOn<Schema>(db: Kysely<Schema>): TransactionsDefinition<Transaction<Schema>> {
  return {
    name: "kysely",
    rightCall:
      "pass the trx of `db.transaction().execute(async (trx) => …)` " +
      "or of store.transaction((tx) => …), while its function runs",
    look,
    async query(trx, text, params) {
      const { rows, numAffectedRows } = await trx.executeQuery<Record<string, unknown>>(
        CompiledQuery.raw(text, [...params]),
      );
      return { rows, rowCount: Number(numAffectedRows ?? rows.length) };
    },
    hasEnded: (error) =>
      error instanceof Error && /^Transaction is already (committed|rolled back)/.test(error.message),
    begin: (work, { isolation }) => {
      const transaction = db.transaction();
      return (isolation === undefined ? transaction : transaction.setIsolationLevel(isolation)).execute(work);
    },
  };
}

/** Kysely refuses statements after the end of a transaction, but not while COMMIT or ROLLBACK is in flight. */
function look(value: unknown): Look {
  const { isTransaction, executeQuery } = (value ?? {}) as Partial<Record<string, unknown>>;
  if (isTransaction === true && typeof executeQuery === "function") return "perhaps";
  return { not: "it is not a transaction of Kysely, and db runs each statement outside of your transaction" };
}
