import type { Knex } from "knex";
import type { TransactionLibrary } from "../store.js";
import { defineTransactions as onMysql } from "./define-mysql-transactions.js";
import { type Look, defineTransactions as onPostgres, type TransactionsDefinition } from "./define-transactions.js";
import { withQuestionMarks } from "./question-marks.js";
import { servedDialect } from "./served-dialect.js";

/**
 * Transactions of Knex on PostgreSQL or MySQL (`client: "mysql2"`). Its types do not tell the dialect, so a store
 * checks it when it is made. The handle is the `trx` that `knex.transaction` passes to its function; nested
 * transactions work too.
 *
 * @example
 * ```ts
 * const db = Knex({ client: "pg", connection: process.env.DATABASE_URL });
 * const store = postgresStore({ pool, transactions: knex(db) });
 * await db.transaction((tx) => createOutbox(store, { source: "/orders" }).in(tx).publish(OrderPlaced, order));
 * ```
 */
export function knex(db: Knex): TransactionLibrary<Knex.Transaction, never> {
  const { dialect, driverName } = db.client;
  // Knex's client for CockroachDB says that its dialect is that of PostgreSQL.
  const said = driverName === "cockroachdb" ? driverName : dialect;
  const library =
    servedDialect("knex", said, ["postgres", "mysql"]) === "mysql"
      ? onMysql<Knex.Transaction>({ ...sharedOn(db), query: queryOnMysql })
      : onPostgres<Knex.Transaction>({ ...sharedOn(db), query: queryOnPostgres });
  return library as TransactionLibrary<Knex.Transaction, never>;
}

function sharedOn(db: Knex): Omit<TransactionsDefinition<Knex.Transaction>, "query" | "client"> {
  return {
    name: "knex",
    rightCall:
      "pass the trx of `knex.transaction(async (trx) => …)` " +
      "or the tx of store.transaction((tx) => …), while its function runs",
    maxTransactions: () => db.client.pool?.max,
    look,
    hasEnded: (error) => error instanceof Error && /^Transaction query already complete/.test(error.message),
    begin: (work, { isolation }) => db.transaction(work, isolation && { isolationLevel: isolation }),
  };
}

async function queryOnPostgres(trx: Knex.Transaction, text: string, params: readonly unknown[]) {
  const marked = withQuestionMarks(text, params);
  const answer = await trx.raw(marked.text, marked.params as Knex.RawBinding[]);
  // `postProcessResponse` may have reduced the result to its rows.
  if (Array.isArray(answer)) return { rows: answer, rowCount: answer.length };
  return { rows: answer.rows, rowCount: answer.rowCount ?? 0 };
}

async function queryOnMysql(trx: Knex.Transaction, text: string, params: readonly unknown[]) {
  const answer = await trx.raw(text, params as Knex.RawBinding[]);
  // `postProcessResponse` may have reduced the result to its first part.
  const isWhole = Array.isArray(answer) && answer.length === 2 && (Array.isArray(answer[0]) || isHeader(answer[0]));
  const result = isWhole ? answer[0] : answer;
  return Array.isArray(result)
    ? { rows: result, rowCount: result.length }
    : { rows: [], rowCount: Number((result as { readonly affectedRows?: unknown }).affectedRows ?? 0) };
}

function isHeader(value: unknown): boolean {
  return typeof value === "object" && value !== null && "affectedRows" in value;
}

function look(value: unknown): Look {
  const trx = (value ?? {}) as Partial<Knex.Transaction>;
  if (trx.isTransaction !== true || typeof trx.isCompleted !== "function") {
    return { not: "knex itself runs each statement on any connection, outside of your transaction" };
  }
  return trx.isCompleted() ? { not: "it has ended" } : "perhaps";
}
