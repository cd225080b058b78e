import { PostboxError } from "../errors.js";
import type { Executor } from "../store.js";
import { failedTransaction, sqlState } from "./sql-state.js";

/**
 * Connection exceptions (08…), a server that starts, shuts down or ends the session (57P0…), too many connections
 * (53300), and a server that takes no writes (25006), as a standby does after a failover.
 */
const states = /^(?:08...|57P0[1-5]|53300|25006)$/;
/** The server refuses writes but still answers. */
const readOnly = "25006";
/**
 * `pg` has no codes of its own for a lost connection. Knex puts the statement in front of the text. Without such a
 * prefix, a socket error may come from anything that a handler calls, so it does not match.
 */
const texts = [
  /(?:^| - )(?:Connection terminated|Client has encountered a connection error|server conn crashed)/,
  / - (?:read|write) E(?:CONNRESET|PIPE|TIMEDOUT)/,
];
/** The codes of Postgres.js and Prisma. */
const codes = /^(?:CONNECTION_(?:CLOSED|ENDED|DESTROYED)|P1001|P1017)$/;

/** The codes of a socket. They count only if Postgres.js has attached the statement. */
const socketCodes = /^(?:ECONNRESET|EPIPE|ETIMEDOUT)$/;

const ends = new WeakSet<Error>();

/**
 * Remembers the error that ended a connection. A statement in flight on that connection fails with the same error,
 * whose text may be no more than ECONNRESET.
 */
export function connectionEnded(error: Error): void {
  ends.add(error);
}

const elsewhere = new WeakSet<object>();

/** Serialization failure and deadlock. */
const conflicts: ReadonlySet<string | undefined> = new Set(["40001", "40P01"]);

/** Whether a transaction failed because of concurrent transactions. */
export function isConflict(error: unknown): boolean {
  return conflicts.has(sqlState(error)) && !elsewhere.has(error as object);
}

/**
 * Marks an error as foreign if it looks like a lost connection or a conflict while its own transaction still answers.
 * Such an error came from another database, so it is treated like any other error.
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
    // A conflict in this transaction would also have aborted it.
    (refused) => !isReadOnly && !isBlamedOnOthers && sqlState(refused) === failedTransaction,
  );
  if (isOther) elsewhere.add(error as object);
}

/** A pool that the user has ended: `pg` reports it by its text, Postgres.js by a code. No retry can succeed. */
const closedText = /Cannot use a pool after calling end on the pool/;
const closedCode = "CONNECTION_ENDED";

/** Returns `store-closed` for work on a pool that was ended, and any other error unchanged. */
export function closedError(storeName: string, error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof PostboxError || !isClosed(error)) return error;
  const text =
    `the pool of ${storeName} was ended while it was still in use: ${error.message}; ` +
    "stop or close everything that uses the store first, then end its pool";
  return new PostboxError("store-closed", text, { cause: error });
}

function isClosed(error: Error): boolean {
  try {
    return closedText.test(error.message) || (error as { readonly code?: unknown }).code === closedCode;
  } catch {
    // See `sqlState`: getters may throw.
    return false;
  }
}

/** Whether an error says that a connection to the database was lost, even if a library has wrapped it. */
export function isConnectionLost(error: unknown): boolean {
  if (elsewhere.has(error as object)) return false;
  const state = sqlState(error);
  if (state !== undefined) return states.test(state);
  try {
    return saysLost(error);
  } catch {
    // See `sqlState`: getters may throw.
    return false;
  }
}

function saysLost(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    const { code, query } = at as { readonly code?: unknown; readonly query?: unknown };
    if (ends.has(at) || texts.some((text) => text.test(at.message)) || codes.test(String(code))) return true;
    if (typeof query === "string" && socketCodes.test(String(code))) return true;
  }
  return false;
}
