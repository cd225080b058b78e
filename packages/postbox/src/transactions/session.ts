import type { Executor, SessionId, TransactionSession } from "../store.js";
import type { ClientState } from "./open-transaction.js";

type Execute = (text: string, params: readonly unknown[]) => ReturnType<Executor>;

/** What a `pg` client runs: a statement, or what its user has written for it, such as a cursor. */
export interface PgQuery {
  readonly text?: string;
  /** Of a cursor. */
  readonly state?: string;
  /** Of a stream. */
  readonly destroyed?: boolean;
  handleError(error: Error, connection: unknown): void;
}

/** What a `pg` client has beside its types. */
export interface ClientParts extends ClientState {
  readonly processID?: number | null;
  readonly connection?: {
    readonly stream?: { destroy(): void };
    on(event: "commandComplete", heard: (message: { readonly text: string }) => void): unknown;
  };
  on(event: "drain" | "end", heard: () => void): unknown;
  removeListener(event: "drain" | "end", heard: () => void): unknown;
}

/** Also under a statement, which fails then as on any connection that is lost. */
export function closeClient(client: ClientParts): void {
  client.connection?.stream?.destroy();
}

const ask = `SELECT pg_catalog.pg_backend_pid() AS pid, extract(epoch FROM backend_start)::text AS started_at,
    extract(epoch FROM pg_catalog.now())::text AS begun_at
  FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())`;

/** Whether a statement is ours: it may be sent without waiting for it. */
export function isSessionQuestion({ text }: { readonly text?: string }): boolean {
  return text === ask;
}

/** The session of an open transaction, and when this transaction began. A library may have renamed the columns. */
export async function askSession(execute: Execute): Promise<Required<SessionId>> {
  const [row = {}] = (await execute(ask, [])).rows;
  const [pid, startedAt, begunAt] = Object.values(row);
  return { pid: Number(pid), startedAt: String(startedAt), begunAt: String(begunAt) };
}

/** Which session is at the other end of a client, where it stays the same. */
const known = new WeakMap<object, SessionId>();

/**
 * The session under a `pg` client. The server is asked once for each client: behind a pooler, whose clients are told another number
 * than the session's, for each transaction.
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
