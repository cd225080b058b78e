import { PostboxError } from "../errors.js";
import { sqlState } from "./sql-state.js";

/** What a `pg` client tells of itself: the server's last word on its transaction, and what pg-pool looks at as well. */
export interface ClientState {
  getTransactionStatus(): "I" | "T" | "E" | null;
  readonly _ending?: boolean;
  readonly _queryable?: boolean;
  readonly _activeQuery?: { readonly text?: string } | null;
  readonly _queryQueue?: readonly { readonly text?: string }[];
}

/** A statement that ends the transaction; not one that only goes back to a savepoint. */
const ending = /^\s*(commit|rollback(?!\s+to)|end|abort)\b/i;

/** Whether this is a `pg` client. A pool is none: each of its statements may run on another connection. */
export function isClient(value: unknown): value is ClientState {
  return typeof value === "object" && value !== null && "getTransactionStatus" in value;
}

/** Why a handle is no open transaction, and what to do where that is not the library's right call. */
export interface Refusal {
  readonly not: string;
  readonly advice?: string;
}

/**
 * Why the client is not inside an open transaction; undefined if it is. It asks the client, not the server, so it
 * costs no round trip and leaves the transaction as it is.
 */
export function whyNotOpen(client: ClientState): Refusal | undefined {
  if (client._ending === true || client._queryable === false) return { not: "its connection is closed" };
  // The status is the server's last word: behind a COMMIT or ROLLBACK on its way, a statement would commit on its own.
  const { _activeQuery: active, _queryQueue: queue } = client;
  if (ends(active) || (queue !== undefined && queue.length > 0 && queue.some(ends))) {
    return { not: "it is being ended" };
  }
  switch (client.getTransactionStatus()) {
    case "T":
      return undefined;
    case "E":
      return failed;
    default:
      return { not: "no transaction is open on this client: it has not begun, or has ended" };
  }
}

const failed: Refusal = {
  not: "a statement in this transaction has failed, so the database refuses everything in it until it is rolled back",
  advice: "let the error leave the transaction instead of going on",
};

/** What the server says of a statement outside of a transaction, and of one in a transaction that has failed. */
const [noTransaction, failedTransaction] = ["25P01", "25P02"];

/**
 * The same for whoever has no such client: asks the server, by a statement that means nothing but fails outside of a transaction.
 * One that has ended may run on a connection that is another's by now, or commit on its own.
 */
export async function whyNotInBlock(execute: (text: string) => Promise<unknown>): Promise<Refusal | undefined> {
  try {
    await execute("LOCK TABLE pg_catalog.pg_am IN ACCESS SHARE MODE");
    return undefined;
  } catch (error) {
    const state = sqlState(error);
    if (state === failedTransaction) return failed;
    if (state === noTransaction) return { not: "it has not begun, or has ended" };
    throw error;
  }
}

/**
 * Throws `commit-rolled-back` if the database could only roll this transaction back: most libraries do not look at what COMMIT
 * answers. A client's own word is not enough, since it rejects a failed statement a moment before it hears of the state that
 * this leaves.
 */
export async function requireAlive(execute: (text: string) => Promise<unknown>): Promise<void> {
  try {
    await execute("SELECT 1");
  } catch (error) {
    throw sqlState(error) === failedTransaction ? commitRolledBack(error) : error;
  }
}

function ends(query: { readonly text?: string } | null | undefined): boolean {
  return query?.text !== undefined && ending.test(query.text);
}

/** The error for what cannot carry a message together with the caller's own writes. */
export function notATransaction({ not, advice }: Refusal, rightCall: string): PostboxError {
  return new PostboxError("not-a-transaction", `this is not an open transaction: ${not}; ${advice ?? rightCall}`);
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
