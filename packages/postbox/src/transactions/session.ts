import type { Executor, SessionId, TransactionSession } from "../store.js";
import type { ClientState } from "./open-transaction.js";

type Execute = (text: string, params: readonly unknown[]) => ReturnType<Executor>;

/** What a `pg` client runs: a statement, or an object of the user such as a cursor. */
export interface PgQuery {
  readonly text?: string;
  /** Set by cursors. */
  readonly state?: string;
  /** Set by streams. */
  readonly destroyed?: boolean;
  handleError(error: Error, connection: unknown): void;
}

/** What a `pg` client has beyond its types. */
export interface ClientParts extends ClientState {
  readonly processID?: number | null;
  readonly connection?: {
    readonly stream?: { destroy(): void };
    on(event: "commandComplete", heard: (message: { readonly text: string }) => void): unknown;
  };
  on(event: "drain" | "end", heard: () => void): unknown;
  removeListener(event: "drain" | "end", heard: () => void): unknown;
}

/** Closes the connection, even while a statement is in flight. The statement then fails as on any lost connection. */
export function closeClient(client: ClientParts): void {
  client.connection?.stream?.destroy();
}

const ask = `SELECT pg_catalog.pg_backend_pid() AS pid, extract(epoch FROM backend_start)::text AS started_at,
    extract(epoch FROM pg_catalog.now())::text AS begun_at
  FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())`;

/** Whether this is Postbox's session query, which may be in flight without being awaited. */
export function isSessionQuestion({ text }: { readonly text?: string }): boolean {
  return text === ask;
}

/**
 * The session of an open transaction and the time at which the transaction began. Reads columns by position, because a
 * library may rename them.
 */
export async function askSession(execute: Execute): Promise<Required<SessionId>> {
  const [row = {}] = (await execute(ask, [])).rows;
  const [pid, startedAt, begunAt] = Object.values(row);
  return { pid: Number(pid), startedAt: String(startedAt), begunAt: String(begunAt) };
}

/** The session of each client that keeps the same one. */
const known = new WeakMap<object, SessionId>();

/**
 * The session of a `pg` client, queried once per client. Behind a pooler, whose clients see another process id than the
 * session's, it is queried for every transaction.
 */
export function sessionOf(client: ClientParts, execute: Execute): TransactionSession {
  const close = () => closeClient(client);
  const cached = known.get(client);
  if (cached !== undefined) return { id: cached, close };
  const asked = askSession(execute).then(({ pid, startedAt, begunAt }) => {
    if (pid !== client.processID) return { pid, startedAt, begunAt };
    known.set(client, { pid, startedAt });
    return { pid, startedAt };
  });
  return { id: asked.catch(() => undefined), close };
}
