import { expiredReason, keptFailures } from "../admin-options.js";
import { messageColumns } from "./message-columns.js";
import type { BoxTables } from "./names.js";

const columns = messageColumns.map(([name]) => name).join(", ");

/** The lanes that stand; and, without a lane, the number that reads have shown this transaction under. */
const answer = "SELECT lane, NULL AS transaction FROM fence UNION ALL SELECT NULL, pg_current_xact_id()::text";

/** Where what was sent is kept: by default there; and where the other one has no partition for it. */
export type KeptIn = "done" | "overflow";

/** The common case, nothing but rows that were sent from `pending`: $3 and $4 say which. The fence is as below. */
export function settleSentSql(t: BoxTables, keptIn: KeptIn | undefined): string {
  const kept = (into: KeptIn) => `, kept AS (
      INSERT INTO ${t[into]} (lane, position, ${columns}, created_at, attempts, failures)
      SELECT lane, position, ${columns}, created_at, attempts + 1, failures FROM gone
    )`;
  return `
    WITH fence AS MATERIALIZED (${fence(t)}), gone AS (
      DELETE FROM ${t.pending} p USING unnest($3::integer[], $4::bigint[]) AS i (lane, position), fence f
      WHERE p.lane = i.lane AND p.position = i.position AND f.lane = i.lane
      ${keptIn === undefined ? "" : "RETURNING p.*"}
    )${keptIn === undefined ? "" : kept(keptIn)}
    ${answer}`;
}

function fence(t: BoxTables): string {
  return `
      SELECT k.lane
      FROM ${t.lane} k JOIN unnest($1::integer[], $2::bigint[]) AS e (lane, epoch) USING (lane, epoch)
      ORDER BY k.lane FOR KEY SHARE OF k
    `;
}

/** The tries that failed, with this one, if it is one; the last of them. */
function failures(before: string): string {
  return `CASE WHEN error IS NULL THEN ${before}
           ELSE CASE WHEN jsonb_array_length(${before}) >= ${keptFailures} THEN ${before} - 0
                     ELSE coalesce(${before}, '[]'::jsonb) END
             || jsonb_build_object('attempt', tries, 'at', clock_timestamp(), 'error', error) END`;
}

/**
 * Settles rows in one statement: $1 and $2 are the lanes and their epochs, $3 to $9 the rows and what becomes of
 * them, $10 whether those that were sent are kept, $11 whether each that waits does so by itself, $12 the rows' turns, $13 what
 * those were held under that were sent from `wait`: whoever handled one may have taken it out already, and not its hold.
 *
 * - `fence` locks the lanes whose epoch still stands. A take-over in progress is waited for, and then the epoch no longer
 *   matches; one that comes later waits for this statement. Nothing below touches a lane outside of it. A mere look at
 *   the epoch would let a settle through whose lane is being taken.
 * - All parts see the tables as they were when the statement began, and none may change a row that another one changes:
 *   so a row is either deleted or updated, and a hold is either set (`held`) or deleted (the end).
 * - A row that is held by itself is so under its id, behind a character that no key can have.
 * - A retry in infinitely many ms is a hold that somebody has to free.
 * - Nothing waits for a key any more when as many of its rows leave as there were; counting stops at one more.
 * - What goes to `wait` always has a hold afterwards, due at once if there was none: without one it would never be read. An
 *   operator may have deleted or changed it while this waited at the fence, and what this sees is older than that: so a
 *   hold is inserted whether or not it is seen, and deleted only if it is still the one that was seen.
 * - Rows that are gone already are passed over, so a settle whose answer was lost can be sent again; and rows that an
 *   operator has put back since, which have had another turn.
 */
export function settleSql(t: BoxTables, keptIn: KeptIn): string {
  return `
    WITH fence AS MATERIALIZED (${fence(t)}), item AS MATERIALIZED (
      SELECT i.*
      FROM unnest($3::integer[], $4::bigint[], $5::boolean[], $6::text[], $7::integer[], $8::double precision[], $9::text[],
                  $12::integer[], $13::text[])
        AS i (lane, position, waiting, fate, tries, retry_in_ms, error, turn, waited_under)
      JOIN fence USING (lane)
    ), from_pending AS (
      DELETE FROM ${t.pending} p USING item i
      WHERE NOT i.waiting AND i.fate <> 'pending' AND p.lane = i.lane AND p.position = i.position
      RETURNING p.*, CASE WHEN $11::boolean OR p.key IS NULL THEN chr(1) || p.id ELSE p.key END AS hold_key,
                i.fate, i.tries, i.retry_in_ms, i.error
    ), again AS (
      UPDATE ${t.pending} p SET attempts = i.tries, last_error = i.error, crashes = 0, failures = ${failures("p.failures")}
      FROM item i
      WHERE NOT i.waiting AND i.fate = 'pending' AND p.lane = i.lane AND p.position = i.position
    ), from_wait AS (
      DELETE FROM ${t.wait} w USING item i
      WHERE i.waiting AND i.fate IN ('sent', 'parked', 'dropped') AND w.lane = i.lane AND w.position = i.position
        AND w.turn = i.turn
      RETURNING w.*, i.fate, i.tries, i.retry_in_ms, i.error
    ), stays AS (
      UPDATE ${t.wait} w
      SET attempts = i.tries, crashes = 0, last_error = coalesce(i.error, w.last_error), updated_at = clock_timestamp(),
          failures = ${failures("w.failures")}
      FROM item i
      WHERE i.waiting AND i.fate IN ('wait', 'pending') AND w.lane = i.lane AND w.position = i.position AND w.turn = i.turn
      RETURNING w.lane, w.hold_key, i.retry_in_ms
    ), comes AS (
      INSERT INTO ${t.wait} (lane, position, ${columns}, created_at, attempts, last_error, hold_key, failures)
      SELECT lane, position, ${columns}, created_at, tries, coalesce(error, last_error), hold_key, ${failures("failures")}
      FROM from_pending WHERE fate = 'wait'
    ), parked AS (
      INSERT INTO ${t.parked} (lane, position, ${columns}, created_at, attempts, reason, failures, turn, holds)
      SELECT lane, position, ${columns}, created_at, tries, error, ${failures("failures")}, 0, retry_in_ms IS NOT NULL
      FROM from_pending WHERE fate = 'parked'
      UNION ALL
      SELECT lane, position, ${columns}, created_at, tries, error, ${failures("failures")}, turn, retry_in_ms IS NOT NULL
      FROM from_wait WHERE fate = 'parked'
    ), kept AS (
      INSERT INTO ${t[keptIn]} (lane, position, ${columns}, created_at, attempts, failures)
      SELECT lane, position, ${columns}, created_at, attempts + 1, failures FROM from_pending
      WHERE fate = 'sent' AND $10::boolean
      UNION ALL
      SELECT lane, position, ${columns}, created_at, attempts + 1, failures FROM from_wait
      WHERE fate = 'sent' AND $10::boolean
    ), dropped AS (
      INSERT INTO ${t.audit} (box, action, actor, reason, count, ids)
      SELECT ${t.name}, 'expire', 'relay', '${expiredReason}', count(*), array_agg(id)
      FROM (SELECT id FROM from_pending WHERE fate = 'dropped'
            UNION ALL SELECT id FROM from_wait WHERE fate = 'dropped') AS gone
      HAVING count(*) > 0
    ), held_key AS MATERIALIZED (
      SELECT lane, hold_key, max(retry_in_ms) AS retry_in_ms
      FROM (SELECT lane, hold_key, retry_in_ms FROM stays
            UNION ALL
            SELECT lane, hold_key, retry_in_ms FROM from_pending
            WHERE fate = 'wait' OR fate = 'parked' AND retry_in_ms IS NOT NULL
            UNION ALL
            SELECT lane, hold_key, retry_in_ms FROM from_wait
            WHERE fate = 'parked' AND retry_in_ms IS NOT NULL) AS kept
      GROUP BY lane, hold_key
    ), held AS (
      INSERT INTO ${t.hold} AS h (lane, key, due_at)
      SELECT k.lane, k.hold_key, CASE WHEN k.retry_in_ms = 'Infinity' THEN 'infinity'
                                      ELSE clock_timestamp() + k.retry_in_ms * interval '1 millisecond' END
      FROM held_key k
      WHERE k.retry_in_ms IS NOT NULL
      ON CONFLICT (lane, key) DO UPDATE SET due_at = excluded.due_at WHERE h.due_at <> 'infinity'
    ), queued AS (
      INSERT INTO ${t.hold} (lane, key, due_at)
      SELECT k.lane, k.hold_key, clock_timestamp() FROM held_key k WHERE k.retry_in_ms IS NULL
      ON CONFLICT (lane, key) DO NOTHING
    ), left_key AS MATERIALIZED (
      SELECT g.*, (SELECT h.changes FROM ${t.hold} h WHERE h.lane = g.lane AND h.key = g.hold_key) AS changes
      FROM (SELECT lane, hold_key, sum(rows) AS rows
            FROM (SELECT lane, hold_key, 1 AS rows FROM from_wait
                  UNION ALL
                  SELECT lane, waited_under, 0 FROM item WHERE waited_under IS NOT NULL) AS l
            GROUP BY lane, hold_key) AS g
    ), released AS (
      DELETE FROM ${t.hold} h USING left_key g
      WHERE h.lane = g.lane AND h.key = g.hold_key AND h.changes = g.changes AND h.due_at <> 'infinity'
        AND (g.lane, g.hold_key) NOT IN (SELECT lane, hold_key FROM held_key)
        AND g.rows = (SELECT count(*) FROM (
          SELECT FROM ${t.wait} w WHERE w.lane = g.lane AND w.hold_key = g.hold_key LIMIT g.rows + 1) AS before)
    )
    ${answer}`;
}

/** Notes the crashes $6 of the rows $3 to $5, in the lanes $1 of the epochs $2. */
export function suspectSql(t: BoxTables): string {
  return `
    WITH fence AS MATERIALIZED (${fence(t)}), item AS MATERIALIZED (
      SELECT i.* FROM unnest($3::integer[], $4::bigint[], $5::boolean[], $6::integer[]) AS i (lane, position, waiting, crashes)
      JOIN fence USING (lane)
    ), from_pending AS (
      UPDATE ${t.pending} p SET crashes = i.crashes FROM item i
      WHERE NOT i.waiting AND p.lane = i.lane AND p.position = i.position
    ), from_wait AS (
      UPDATE ${t.wait} w SET crashes = i.crashes FROM item i
      WHERE i.waiting AND w.lane = i.lane AND w.position = i.position
    )
    SELECT lane FROM fence`;
}
