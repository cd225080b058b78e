import { PostboxError } from "../errors.js";
import type { Executor } from "../store.js";
import { failedTransaction, sqlState } from "./sql-state.js";

/**
 * The server ends, starts, or ends this session; whatever goes wrong with a connection; and that the server takes no writes, as one that
 * is a standby since a failover.
 */
const states = /^(?:08...|57P0[1-5]|53300|25006)$/;
/** The server takes no writes, but still answers. */
const readOnly = "25006";
/**
 * What `pg` says when it was lost: it has no codes of its own; Knex writes the statement before it. Those of a socket may come from
 * anything that a handler calls.
 */
const texts =
  /(?:^| - )(?:Connection terminated|Client has encountered a connection error|server conn crashed)| - (?:read|write) E(?:CONNRESET|PIPE|TIMEDOUT)/;
/** Those of Postgres.js, and of Prisma. */
const codes = /^(?:CONNECTION_(?:CLOSED|ENDED|DESTROYED)|P1001|P1017)$/;

/** Of a socket, where Postgres.js has put the statement beside it. */
const socketCodes = /^(?:ECONNRESET|EPIPE|ETIMEDOUT)$/;

const ends = new WeakSet<Error>();

/** Notes what a connection ended with: a statement that was under way on it fails with the same error, which may say no more than ECONNRESET. */
export function connectionEnded(error: Error): void {
  ends.add(error);
}

const elsewhere = new WeakSet<object>();

/** A serialization failure, and a deadlock. */
const conflicts: ReadonlySet<string | undefined> = new Set(["40001", "40P01"]);

/** Whether a transaction failed for others that ran beside it. */
export function isConflict(error: unknown): boolean {
  return conflicts.has(sqlState(error)) && !elsewhere.has(error as object);
}

/**
 * Notes what a function failed with if it looks like a lost connection, or like a conflict, while its own transaction still answers: then
 * it came from another database, and is an error like any other.
 */
export async function noteElsewhere(
  error: unknown,
  execute: (text: string, params: readonly unknown[]) => ReturnType<Executor>,
): Promise<void> {
  const isBlamedOnOthers = isConflict(error);
  if (!isBlamedOnOthers && !isConnectionLost(error)) return;
  const isReadOnly = sqlState(error) === readOnly;
  const isOther = await execute("SELECT current_setting('transaction_read_only') AS set", []).then(
    ({ rows }) => !isReadOnly || rows[0]?.set !== "on",
    // A conflict of its own has failed it, too.
    (refused) => !isReadOnly && !isBlamedOnOthers && sqlState(refused) === failedTransaction,
  );
  if (isOther) elsewhere.add(error as object);
}

/** Where the user has ended the pool, `pg` says it in a text and Postgres.js in a code. No retry can mend that. */
const closedText = /Cannot use a pool after calling end on the pool/;
const closedCode = "CONNECTION_ENDED";

/** The error for work on a pool that was ended; any other as it is. */
export function closedError(storeName: string, error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof PostboxError || !isClosed(error)) return error;
  const text = `the pool of ${storeName} was ended while it was still in use: ${error.message}; stop or close what works on the store first, and end its pool after that`;
  return new PostboxError("store-closed", text, { cause: error });
}

function isClosed(error: Error): boolean {
  try {
    return closedText.test(error.message) || (error as { readonly code?: unknown }).code === closedCode;
  } catch {
    // As for `sqlState`.
    return false;
  }
}

/** Whether an error says that a connection to the database was lost, also where a library has wrapped it. */
export function isConnectionLost(error: unknown): boolean {
  if (elsewhere.has(error as object)) return false;
  const state = sqlState(error);
  if (state !== undefined) return states.test(state);
  try {
    return saysLost(error);
  } catch {
    // As for `sqlState`.
    return false;
  }
}

function saysLost(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    const { code, query } = at as { readonly code?: unknown; readonly query?: unknown };
    if (ends.has(at) || texts.test(at.message) || codes.test(String(code))) return true;
    if (typeof query === "string" && socketCodes.test(String(code))) return true;
  }
  return false;
}
