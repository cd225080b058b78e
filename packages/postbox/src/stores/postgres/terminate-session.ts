import { setTimeout as sleep } from "node:timers/promises";
import type { SessionId } from "../../store.js";
import type { OpenConnection } from "./own-connection.js";

const limitMs = 5_000;
const lookAgainMs = 10;

/** The right session only: numbers are used again, and behind a pooler its next transaction is another client's. */
const terminate = `
  SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
  WHERE a.pid = $1::integer AND extract(epoch FROM a.backend_start)::text = $2::text
    AND ($3::text IS NULL OR extract(epoch FROM a.xact_start)::text = $3::text)`;

/**
 * Ends a session, and resolves when it is gone: then its transaction is rolled back, and its locks are free. Any role may end its own
 * sessions. On a connection of its own: the sessions that hang may be all that the pool has. Undefined where there can be no other.
 */
export function sessionTerminator(
  open: OpenConnection | undefined,
): ((session: SessionId) => Promise<void>) | undefined {
  if (open === undefined) return undefined;
  return async ({ pid, startedAt, begunAt }) => {
    const connection = await open("end of a transaction", limitMs);
    try {
      for (const until = Date.now() + limitMs; Date.now() < until; await sleep(lookAgainMs)) {
        const { rowCount } = await connection.query(terminate, [pid, startedAt, begunAt ?? null]);
        if (rowCount === 0) return;
      }
    } finally {
      await connection.close();
    }
  };
}
