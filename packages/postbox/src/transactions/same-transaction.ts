import type { Executor, TransactionExecutor } from "../store.js";
import { ended, failed, notATransaction, onlyValue, type Refusal } from "./open-transaction.js";
import { failedTransaction, sqlState } from "./sql-state.js";

/*
 * For libraries that do not tell whether a transaction is open: the database is asked for its number, and each statement that writes
 * gets the condition that this is still the number of the transaction it runs in.
 */

type Execute = (text: string, params: readonly unknown[]) => ReturnType<Executor>;

/** The number of the transaction, or why none can be had. Outside of one, it is that of the asking statement alone. */
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
 * Runs a statement if the transaction is the one with this number. One that has ended would run it on a connection that is another's
 * by now, or commit it on its own; also if it ends just before the statement is sent.
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
    // Without its cause, which is how the question was asked.
    throw saysElsewhere(error) ? notATransaction(ended, rightCall) : error;
  }
}

const elsewhere = "not in transaction ";

/**
 * A condition that fails in any other transaction. What is no boolean is an error: nothing may be written, and nothing else may look
 * like success. Not a constant one, which would be found out while the statement is planned.
 */
function hasNumber(parameter: number): string {
  const own = "pg_current_xact_id()::text";
  return `CASE WHEN ${own} = $${parameter}::text THEN TRUE ELSE ('${elsewhere}' || ${own})::boolean END`;
}

/** Libraries wrap the database's errors, and write their own texts around it; also the statement, where no number follows. */
function saysElsewhere(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    if (/not in transaction \d/.test(at.message)) return true;
  }
  return false;
}
