import type { Knex } from "knex";
import type { TransactionLibrary } from "../store.js";
import { defineTransactions, type Look } from "./define-transactions.js";
import { withQuestionMarks } from "./question-marks.js";
import { requireServed } from "./served-dialect.js";

/**
 * Transactions of Knex on PostgreSQL. The handle is the `trx` that `knex.transaction` passes to its function; nested
 * transactions work too.
 *
 * @example
 * ```ts
 * const db = Knex({ client: "pg", connection: process.env.DATABASE_URL });
 * const store = postgresStore({ pool, transactions: knex(db) });
 * await db.transaction((tx) => createOutbox(store, { source: "/orders" }).in(tx).publish(OrderPlaced, order));
 * ```
 */
export function knex(db: Knex): TransactionLibrary<Knex.Transaction, "postgres"> {
  const { dialect, driverName } = db.client;
  // Knex's client for CockroachDB says that its dialect is that of PostgreSQL.
  requireServed("knex", driverName === "cockroachdb" ? driverName : dialect);
  return defineTransactions<Knex.Transaction>({
    name: "knex",
    rightCall:
      "pass the trx of `knex.transaction(async (trx) => …)` " +
      "or the tx of store.transaction((tx) => …), while its function runs",
    maxTransactions: () => db.client.pool?.max,
    look,
    async query(trx, text, params) {
      const marked = withQuestionMarks(text, params);
      const answer = await trx.raw(marked.text, marked.params as Knex.RawBinding[]);
      // `postProcessResponse` may have reduced the result to its rows.
      if (Array.isArray(answer)) return { rows: answer, rowCount: answer.length };
      return { rows: answer.rows, rowCount: answer.rowCount ?? 0 };
    },
    hasEnded: (error) => error instanceof Error && /^Transaction query already complete/.test(error.message),
    begin: (work, { isolation }) => db.transaction(work, isolation && { isolationLevel: isolation }),
  });
}

function look(value: unknown): Look {
  const trx = (value ?? {}) as Partial<Knex.Transaction>;
  if (trx.isTransaction !== true || typeof trx.isCompleted !== "function") {
    return { not: "knex itself runs each statement on any connection, outside of your transaction" };
  }
  return trx.isCompleted() ? { not: "it has ended" } : "perhaps";
}
