import { setImmediate as nextTurn } from "node:timers/promises";
import { PostboxError } from "../errors.js";
import { type PgQuery as AnyQuery, type ClientParts, closeClient, isSessionQuestion } from "./session.js";

/**
 * How long a statement may take to end, or a cursor to close. If the transaction has a signal, such as a handler's
 * timeout, and it is aborted earlier, the signal ends the transaction.
 */
const limitMs = 10_000;
/** Marks a statement of Postbox. */
const own = Symbol("own");

interface PgQuery extends AnyQuery {
  [own]?: true;
}

/** How long a cursor may stay open, and how long abandoned work may go on sending statements. */
const graceMs = 1_000;

/** Marks the statement that was last given to a client as Postbox's own, whose failure Postbox handles. */
export function markOwn({ _activeQuery: active, _sentQueryQueue: sent, _queryQueue: queue }: ClientParts): void {
  const query = (queue?.at(-1) ?? sent?.at(-1) ?? active) as PgQuery | null | undefined;
  if (query) query[own] = true;
}

/**
 * Call it when the function of a transaction has ended. Returns undefined if nothing is in flight on its `pg` client.
 * Otherwise waits until the client is idle, so that ROLLBACK follows what was sent. Then it rejects with `not-awaited`,
 * because the failure of such a statement would go unnoticed.
 *
 * Resolves if only cursors were in flight and all of them have closed: a stream that is left early closes its cursor in
 * the background.
 *
 * If the client does not become idle, for example because an open cursor blocks the queue, the connection is closed.
 * The database then rolls back.
 */
export function refuseUnawaited(client: ClientParts): Promise<void> | undefined {
  const before = underWay(client);
  return before && refuse(client, before);
}

async function refuse(client: ClientParts, before: readonly PgQuery[]): Promise<void> {
  const started = performance.now();
  // Counts even if it ends in time, because its failure could have been missed.
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

/**
 * What the server has not answered yet, in order. Undefined if nothing is in flight, which is the common and cheap
 * case.
 */
function underWay(client: ClientParts): readonly PgQuery[] | undefined {
  const { _activeQuery: active, _sentQueryQueue: sent = [], _queryQueue: queue = [] } = client;
  if (!active && sent.length === 0 && queue.length === 0) return undefined;
  const all = [active, ...sent, ...queue].filter((query) => query && !isSessionQuestion(query));
  return all.length === 0 ? undefined : (all as PgQuery[]);
}

/** Whether it is a plain statement. Anything else is a cursor or a stream of rows, which its user reads and closes. */
function isStatement(client: ClientParts, query: PgQuery): boolean {
  const { Query } = client.constructor as { readonly Query?: new () => unknown };
  return Query === undefined || query instanceof Query;
}

/** Whether it has sent Close, as `pg-cursor` and the streams built on it show. */
function isClosing({ state, destroyed }: PgQuery): boolean {
  return state === "done" || destroyed === true;
}

/**
 * Resolves when the client is idle or has ended, or after `ms`, and after the code that awaited its results has
 * continued.
 */
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
 * Closes the connection. Postbox's own statements reject with `error`, which Postbox handles. Those of the user never
 * settle, as behind an open cursor with plain `pg`; a rejection that nothing handles would end the process.
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
    `${what} still in flight when the transaction's function ended, so ${outcome}; ` +
      `${advice} before the function returns`,
  );
}
