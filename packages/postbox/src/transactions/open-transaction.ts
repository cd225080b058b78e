import { PostboxError } from "../errors.js";
import type { Executor } from "../store.js";
import { failedTransaction, sqlState } from "./sql-state.js";

/**
 * The state of a `pg` client: the transaction status that the server sent last, and the members that pg-pool checks.
 */
export interface ClientState {
  getTransactionStatus(): "I" | "T" | "E" | null;
  readonly _ending?: boolean;
  readonly _queryable?: boolean;
  readonly _activeQuery?: { readonly text?: string } | null;
  readonly _queryQueue?: readonly { readonly text?: string }[];
  /** Statements that were pipelined: sent before the previous one was answered. */
  readonly _sentQueryQueue?: readonly { readonly text?: string }[];
}

/** A statement that ends the transaction. ROLLBACK TO SAVEPOINT does not. */
const ending =
  /(?:^|;)\s*(?:commit|rollback(?!\s+(?:(?:work|transaction)\s+)?to\b)|end|abort|prepare\s+transaction)\b/i;
const comments = /\/\*.*?\*\/|--[^\n]*/gs;

/** Whether this is a `pg` client. A pool is not: it may run each statement on another connection. */
export function isClient(value: unknown): value is ClientState {
  return typeof value === "object" && value !== null && "getTransactionStatus" in value;
}

/** Why a handle is not an open transaction. `advice` replaces the library's usual advice. */
export interface Refusal {
  readonly not: string;
  readonly advice?: string;
  readonly cause?: Error;
}

/**
 * Returns why the client is not in an open transaction, or undefined if it is. Asks the client, not the server, so it
 * costs no round trip and does not affect the transaction.
 */
export function whyNotOpen(client: ClientState): Refusal | undefined {
  if (client._ending === true || client._queryable === false) return lost;
  // The status is the last one that the server sent. Behind a COMMIT or ROLLBACK in flight, a statement would commit by
  // itself.
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
        not:
          "no transaction is open on this client: it has not begun, or has ended, " +
          "for example because a publish was not awaited",
      };
  }
}

/**
 * Starts with the text that `pg` gives to statements in flight, so that it is recognized as a lost connection. No
 * statement was sent, so the stack would mislead.
 */
const terminated = new Error("Connection terminated before this statement, which was not sent");
terminated.stack = String(terminated);

export const lost: Refusal = { not: "its connection is closed", cause: terminated };

export const failed: Refusal = {
  not: "a statement in this transaction has failed, so the database refuses everything in it until it is rolled back",
  advice: "let the error leave the transaction instead of going on",
};

/** Used if only the database can tell that the transaction is not open. */
export const ended: Refusal = { not: "it has not begun, or has ended, for example because a publish was not awaited" };

type Execute = (text: string, params: readonly unknown[]) => ReturnType<Executor>;

/**
 * Throws `commit-rolled-back` if the transaction has failed, because COMMIT would roll it back and most libraries
 * ignore COMMIT's command tag. The client's status is not enough: a failed statement rejects a moment before the client
 * receives the new status.
 */
export async function requireAlive(execute: Execute): Promise<void> {
  await orCommitRolledBack(execute("SELECT 1", []));
}

/**
 * Awaits the last statement before COMMIT. If it fails because the transaction is aborted, throws `commit-rolled-back`.
 */
export async function orCommitRolledBack<R>(statement: Promise<R>): Promise<R> {
  try {
    return await statement;
  } catch (error) {
    throw orSwallowed(error);
  }
}

/**
 * The error to report for a failed function. "Current transaction is aborted" only follows an earlier error that the
 * function has swallowed, so it becomes `commit-rolled-back`.
 */
export function orSwallowed(error: unknown): unknown {
  return sqlState(error) === failedTransaction ? commitRolledBack(error) : error;
}

/** Whether a statement ends the transaction. ROLLBACK TO SAVEPOINT does not. */
export function endsTransaction(query: { readonly text?: string } | null | undefined): boolean {
  return query?.text !== undefined && ending.test(query.text.replace(comments, " "));
}

/** The value of a result with one column, whose name a library may have changed. */
export function onlyValue(rows: readonly Readonly<Record<string, unknown>>[]): unknown {
  return Object.values(rows[0] ?? {})[0];
}

/** The error for a handle that cannot carry a message together with the caller's own writes. */
export function notATransaction({ not, advice, cause }: Refusal, rightCall: string): PostboxError {
  return new PostboxError("not-a-transaction", `this is not an open transaction: ${not}; ${advice ?? rightCall}`, {
    cause,
  });
}

/** The error for a function that resolved although its transaction could only be rolled back. */
export function commitRolledBack(cause?: unknown): PostboxError {
  return new PostboxError(
    "commit-rolled-back",
    "the transaction was rolled back instead of committed: a statement in it failed and its error was swallowed; " +
      "let errors leave the transaction, or put what may fail behind a savepoint",
    { cause },
  );
}
