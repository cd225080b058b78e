import { CompiledQuery, type Kysely, type Transaction } from "kysely";
import type { TransactionLibrary } from "../store.js";
import { defineTransactions, type Look } from "./define-transactions.js";
import { classesOf, requireServed } from "./served-dialect.js";

/**
 * Transactions of Kysely on its PostgreSQL dialect. The handle is the `trx` of `db.transaction().execute(…)` or of
 * `db.startTransaction().execute()`.
 *
 * @example
 * ```ts
 * const db = new Kysely<{ orders: { id: string } }>({ dialect: new PostgresDialect({ pool }) });
 * const store = postgresStore({ pool, transactions: kysely(db) });
 * const outbox = createOutbox(store, { source: "/orders" });
 * await db.transaction().execute((tx) => outbox.in(tx).publish(OrderPlaced, order));
 * ```
 */
export function kysely<Schema>(db: Kysely<Schema>): TransactionLibrary<Transaction<Schema>, "postgres"> {
  requireServed("kysely", classesOf(db.getExecutor().adapter));
  return defineTransactions<Transaction<Schema>>({
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
  });
}

/** Kysely refuses statements after the end of a transaction, but not while COMMIT or ROLLBACK is in flight. */
function look(value: unknown): Look {
  const { isTransaction, executeQuery } = (value ?? {}) as Partial<Record<string, unknown>>;
  if (isTransaction === true && typeof executeQuery === "function") return "perhaps";
  return { not: "it is not a transaction of Kysely, and db runs each statement outside of your transaction" };
}
