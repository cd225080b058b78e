import type { Executor, TransactionExecutor } from "../store.js";
import { ended, failed, notATransaction, onlyValue, type Refusal } from "./open-transaction.js";
import { failedTransaction, sqlState } from "./sql-state.js";

/*
 * For libraries that do not show whether a transaction is open. The database is asked for the transaction id, and each
 * write runs under the condition that it is still in that transaction.
 */

type Execute = (text: string, params: readonly unknown[]) => ReturnType<Executor>;

/** The transaction id, or why there is none. Outside of a transaction, it is the id of this query alone. */
export async function askNumber(execute: Execute): Promise<string | Refusal> {
  try {
    const { rows } = await execute("SELECT pg_current_xact_id()::text AS number", []);
    return String(onlyValue(rows));
  } catch (error) {
    if (sqlState(error) === failedTransaction) return failed;
    throw error;
  }
}

/**
 * Runs a statement only if the transaction still has this id. If it has ended, the statement would commit by itself, or
 * join another transaction on the same connection. The condition also holds if the transaction ends just before the
 * statement is sent.
 */
export async function inTransaction(
  number: string,
  execute: Execute,
  statement: Parameters<TransactionExecutor>[0],
  params: readonly unknown[],
  rightCall: string,
): ReturnType<Executor> {
  if (typeof statement === "string") return execute(statement, params);
  try {
    return await execute(statement.under(hasNumber(params.length + 1)), [...params, number]);
  } catch (error) {
    // Without the cause: it shows only the failed cast.
    throw saysElsewhere(error) ? notATransaction(ended, rightCall) : error;
  }
}

const elsewhere = "not in transaction ";

/**
 * A condition that fails in any other transaction. The cast to boolean raises an error, so nothing is written and
 * nothing looks like success. It is not constant: the planner would evaluate it.
 */
function hasNumber(parameter: number): string {
  const own = "pg_current_xact_id()::text";
  return `CASE WHEN ${own} = $${parameter}::text THEN TRUE ELSE ('${elsewhere}' || ${own})::boolean END`;
}

/** Libraries wrap the database's errors in their own texts. They also quote the statement, where no number follows. */
function saysElsewhere(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    if (/not in transaction \d/.test(at.message)) return true;
  }
  return false;
}
