import { PostboxError } from "../errors.js";

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

/**
 * Throws `not-a-transaction` unless the client is inside an open transaction. It asks the client, not the server, so it
 * costs no round trip and leaves the transaction as it is. `call` shows how to do it right.
 */
export function requireOpen(client: ClientState, call: string): void {
  if (client._ending === true || client._queryable === false) {
    throw notATransaction("its connection is closed", call);
  }
  // The status is the server's last word: behind a COMMIT or ROLLBACK on its way, a statement would commit on its own.
  const { _activeQuery: active, _queryQueue: queue } = client;
  if (ends(active) || (queue !== undefined && queue.length > 0 && queue.some(ends))) {
    throw notATransaction("it is being ended", call);
  }
  switch (client.getTransactionStatus()) {
    case "T":
      return;
    case "E":
      throw notATransaction(
        "a statement in this transaction has failed, so the database refuses everything in it until it is rolled back",
        "let the error leave the transaction instead of going on",
      );
    default:
      throw notATransaction("no transaction is open on this client: it has not begun, or has ended", call);
  }
}

function ends(query: { readonly text?: string } | null | undefined): boolean {
  return query?.text !== undefined && ending.test(query.text);
}

/** The error for what cannot carry a message together with the caller's own writes. */
export function notATransaction(why: string, advice: string): PostboxError {
  return new PostboxError("not-a-transaction", `this is not an open transaction: ${why}; ${advice}`);
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
