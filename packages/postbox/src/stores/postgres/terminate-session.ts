import { setTimeout as sleep } from "node:timers/promises";
import type { SessionId } from "../../store.js";
import type { OpenConnection } from "./own-connection.js";

const limitMs = 5_000;
const lookAgainMs = 10;

/**
 * Checks more than the process id: ids are reused, and behind a pooler the next transaction of a session is another
 * client's.
 */
const terminate = `
  SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
  WHERE a.pid = $1::integer AND extract(epoch FROM a.backend_start)::text = $2::text
    AND ($3::text IS NULL OR extract(epoch FROM a.xact_start)::text = $3::text)`;

/**
 * Ends a session and resolves when it is gone: its transaction is rolled back and its locks are released. Any role may
 * end its own sessions. It uses a connection outside of the pool, because hanging sessions may occupy the whole pool.
 * Undefined if no such connection is possible.
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
