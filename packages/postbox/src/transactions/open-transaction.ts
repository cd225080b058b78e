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

export const failed: Refusal = {
  not: "a statement in this transaction has failed, so the database refuses everything in it until it is rolled back",
  advice: "let the error leave the transaction instead of going on",
};

/** Where only the database can tell that it is not open. */
export const ended: Refusal = { not: "it has not begun, or has ended, as it has when a publish was not awaited" };

type Execute = (text: string, params: readonly unknown[]) => ReturnType<Executor>;

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
