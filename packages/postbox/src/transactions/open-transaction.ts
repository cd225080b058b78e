import { PostboxError } from "../errors.js";
import type { Executor } from "../store.js";
import { failedTransaction, sqlState } from "./sql-state.js";

/** What a `pg` client tells of itself: the server's last word on its transaction, and what pg-pool looks at as well. */
export interface ClientState {
  getTransactionStatus(): "I" | "T" | "E" | null;
  readonly _ending?: boolean;
  readonly _queryable?: boolean;
  readonly _activeQuery?: { readonly text?: string } | null;
  readonly _queryQueue?: readonly { readonly text?: string }[];
  /** Sent before the one before it was answered. */
  readonly _sentQueryQueue?: readonly { readonly text?: string }[];
}

/** A statement that ends the transaction; not one that only goes back to a savepoint. */
const ending =
  /(?:^|;)\s*(?:commit|rollback(?!\s+(?:(?:work|transaction)\s+)?to\b)|end|abort|prepare\s+transaction)\b/i;
const comments = /\/\*.*?\*\/|--[^\n]*/gs;

/** Whether this is a `pg` client. A pool is none: each of its statements may run on another connection. */
export function isClient(value: unknown): value is ClientState {
  return typeof value === "object" && value !== null && "getTransactionStatus" in value;
}

/** Why a handle is no open transaction, and what to do where that is not the library's right call. */
export interface Refusal {
  readonly not: string;
  readonly advice?: string;
  readonly cause?: Error;
}

/**
 * Why the client is not inside an open transaction; undefined if it is. It asks the client, not the server, so it
 * costs no round trip and leaves the transaction as it is.
 */
export function whyNotOpen(client: ClientState): Refusal | undefined {
  if (client._ending === true || client._queryable === false) return lost;
  // The status is the server's last word: behind a COMMIT or ROLLBACK on its way, a statement would commit on its own.
  const { _activeQuery: active, _queryQueue: queue, _sentQueryQueue: sent } = client;
  if (endsTransaction(active) || queue?.some(endsTransaction) || sent?.some(endsTransaction))
    return { not: "it is being ended" };
  switch (client.getTransactionStatus()) {
    case "T":
      return undefined;
    case "E":
      return failed;
    default:
      return {
        not: "no transaction is open on this client: it has not begun, or has ended, as it has when a publish was not awaited",
      };
  }
}

/** Begins with what `pg` says of a statement in flight, by which it is known as a lost connection. No statement failed, so it has no stack. */
const terminated = new Error("Connection terminated before this statement, which was not sent");
terminated.stack = String(terminated);

export const lost: Refusal = { not: "its connection is closed", cause: terminated };

const failed: Refusal = {
  not: "a statement in this transaction has failed, so the database refuses everything in it until it is rolled back",
  advice: "let the error leave the transaction instead of going on",
};

type Execute = (text: string, params: readonly unknown[]) => ReturnType<Executor>;

/**
 * In every statement of a store that writes in a user's transaction: a condition that always holds. Whoever cannot tell whether the
 * transaction is open puts in its place that it is still the one which was asked about.
 */
export const sameTransaction = "TRUE /* the same transaction */";

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
  text: string,
  params: readonly unknown[],
  rightCall: string,
): ReturnType<Executor> {
  if (!text.includes(sameTransaction)) return execute(text, params);
  const parameter = `$${params.length + 1}::text`;
  // What is no boolean is an error: nothing may be written, and nothing else may look like success. Not a constant one, which would
  // be found out while the statement is planned.
  const own = "pg_current_xact_id()::text";
  const same = `CASE WHEN ${own} = ${parameter} THEN TRUE ELSE ('${elsewhere}' || ${own})::boolean END`;
  try {
    return await execute(text.replaceAll(sameTransaction, same), [...params, number]);
  } catch (error) {
    // Without its cause, which is how the question was asked.
    throw saysElsewhere(error) ? notATransaction(ended, rightCall) : error;
  }
}

const elsewhere = "not in transaction ";
export const ended: Refusal = { not: "it has not begun, or has ended, as it has when a publish was not awaited" };

/** Libraries wrap the database's errors, and write their own texts around it; also the statement, where no number follows. */
function saysElsewhere(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    if (/not in transaction \d/.test(at.message)) return true;
  }
  return false;
}

/**
 * Throws `commit-rolled-back` if the database could only roll this transaction back: most libraries do not look at what COMMIT
 * answers. A client's own word is not enough, since it rejects a failed statement a moment before it hears of the state that
 * this leaves.
 */
export async function requireAlive(execute: Execute): Promise<void> {
  await orCommitRolledBack(execute("SELECT 1", []));
}

/** The answer of the last statement before COMMIT. */
export async function orCommitRolledBack<R>(statement: Promise<R>): Promise<R> {
  try {
    return await statement;
  } catch (error) {
    throw orSwallowed(error);
  }
}

/**
 * What a function failed with. That its transaction is aborted, as the database says, helps nobody: what matters is the error before,
 * which the function has swallowed.
 */
export function orSwallowed(error: unknown): unknown {
  return sqlState(error) === failedTransaction ? commitRolledBack(error) : error;
}

/** Whether a statement ends the transaction; one that only goes back to a savepoint does not. */
export function endsTransaction(query: { readonly text?: string } | null | undefined): boolean {
  return query?.text !== undefined && ending.test(query.text.replace(comments, " "));
}

/** Of an answer with one column: a library may have renamed it. */
export function onlyValue(rows: readonly Readonly<Record<string, unknown>>[]): unknown {
  return Object.values(rows[0] ?? {})[0];
}

/** The error for what cannot carry a message together with the caller's own writes. */
export function notATransaction({ not, advice, cause }: Refusal, rightCall: string): PostboxError {
  return new PostboxError("not-a-transaction", `this is not an open transaction: ${not}; ${advice ?? rightCall}`, {
    cause,
  });
}

/** The error for work that looked fine, while the database could only roll it back. */
export function commitRolledBack(cause?: unknown): PostboxError {
  return new PostboxError(
    "commit-rolled-back",
    "the transaction was rolled back instead of committed: a statement in it failed and its error was swallowed; " +
      "let errors leave the transaction, or put what may fail behind a savepoint",
    { cause },
  );
}
