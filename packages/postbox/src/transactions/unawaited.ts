import { setImmediate as nextTurn } from "node:timers/promises";
import { PostboxError } from "../errors.js";
import { type PgQuery as AnyQuery, type ClientParts, closeClient, isSessionQuestion } from "./session.js";

/**
 * How long a statement may take to end, or a cursor to be closed. A transaction with a signal, as of a handler with a timeout, is ended by
 * its signal if that comes first.
 */
const limitMs = 10_000;
/** Marks a statement of Postbox. */
const own = Symbol("own");

interface PgQuery extends AnyQuery {
  [own]?: true;
}

/** How long a cursor may stay open, and work that was left behind may go on sending statements. */
const graceMs = 1_000;

/** Marks the statement that was just given to a client as one of Postbox, which handles its failure. */
export function markOwn({ _activeQuery: active, _sentQueryQueue: sent, _queryQueue: queue }: ClientParts): void {
  const query = (queue?.at(-1) ?? sent?.at(-1) ?? active) as PgQuery | null | undefined;
  if (query) query[own] = true;
}

/**
 * Returns undefined if nothing is under way on a `pg` client when the function of its transaction has ended. Otherwise waits until
 * the client is idle, so that ROLLBACK follows what was sent, and rejects with `not-awaited`: the failure of such a
 * statement would go unnoticed. Resolves if only cursors were under way and each of them has ended: leaving a stream early starts to
 * close its cursor without waiting for it.
 *
 * If the client does not become idle, as with an open cursor, which would block everything behind it for ever, the connection is
 * closed. The database then rolls back.
 */
export function refuseUnawaited(client: ClientParts): Promise<void> | undefined {
  const before = underWay(client);
  return before && refuse(client, before);
}

async function refuse(client: ClientParts, before: readonly PgQuery[]): Promise<void> {
  const started = performance.now();
  // Also one that ends in time: its failure could have been missed.
  let forgotten = before.filter((query) => isStatement(client, query)).length;
  for (let now: readonly PgQuery[] | undefined = before; now !== undefined; now = underWay(client)) {
    const [active] = now as [PgQuery];
    if (forgotten === 0 && now.some((query) => isStatement(client, query))) forgotten = 1;
    const ends = before.includes(active) && (isStatement(client, active) || isClosing(active));
    const leftMs = started + (ends ? limitMs : graceMs) - performance.now();
    if (leftMs <= 0) {
      const error = notAwaited(forgotten, "everything was rolled back and the connection closed");
      closeQuietly(client, now, error);
      throw error;
    }
    await idle(client, Math.min(leftMs, graceMs));
  }
  if (forgotten > 0) throw notAwaited(forgotten, "everything was rolled back");
}

/** What the server has not answered yet, in order; undefined if that is nothing, the case that must cost nothing. */
function underWay(client: ClientParts): readonly PgQuery[] | undefined {
  const { _activeQuery: active, _sentQueryQueue: sent = [], _queryQueue: queue = [] } = client;
  if (!active && sent.length === 0 && queue.length === 0) return undefined;
  const all = [active, ...sent, ...queue].filter((query) => query && !isSessionQuestion(query));
  return all.length === 0 ? undefined : (all as PgQuery[]);
}

/** Anything else that a client runs is a cursor or a stream of rows, which its user reads and closes. */
function isStatement(client: ClientParts, query: PgQuery): boolean {
  const { Query } = client.constructor as { readonly Query?: new () => unknown };
  return Query === undefined || query instanceof Query;
}

/** What `pg-cursor` and the streams over it show as soon as they have sent Close. */
function isClosing({ state, destroyed }: PgQuery): boolean {
  return state === "done" || destroyed === true;
}

/** Resolves when the client is idle or has ended, or after `ms`; and not before the code that waited for its answers has continued. */
async function idle(client: ClientParts, ms: number): Promise<void> {
  await new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(timer);
      client.removeListener("drain", done);
      client.removeListener("end", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    client.on("drain", done);
    client.on("end", done);
  });
  await nextTurn();
}

/**
 * Closes the connection. Postbox's own statements reject with `error`, since Postbox handles that. The user's never settle, as behind
 * an open cursor with plain `pg`: an unhandled rejection would end the process.
 */
function closeQuietly(client: ClientParts, queries: readonly PgQuery[], error: PostboxError): void {
  for (const query of queries) {
    if (query[own] === true) query.handleError(error, client.connection);
    query.handleError = () => {};
  }
  closeClient(client);
}

function notAwaited(statements: number, outcome: string): PostboxError {
  const what =
    statements === 0 ? "a cursor was" : statements === 1 ? "a statement was" : `${statements} statements were`;
  const advice = statements === 0 ? "close every cursor" : "await every statement";
  return new PostboxError(
    "not-awaited",
    `${what} still under way when the transaction's function ended, so ${outcome}; ${advice} before the function returns`,
  );
}
