import { laneCount } from "../../internal/lane.js";
import { messageColumns, messageSelection, selectedColumns } from "./message-columns.js";
import { type BoxTables, isOfBox } from "./names.js";
import { numbered } from "./write-sql.js";

const columns = messageColumns.map(([name]) => name).join(", ");

/*
 * Ownership of a box, and reading it. Locks are always taken in the same order, lanes ascending and then members, so
 * that no two of these statements and a settle wait for each other.
 */

const inMs = (ms: string) => `clock_timestamp() + (${ms})::double precision * interval '1 millisecond'`;

function isPaused(t: BoxTables): string {
  return `name = ${t.name} AND paused_at IS NOT NULL`;
}

/**
 * Touches the member only, so that a renewal never waits for a settle. Answers with what is its own, and with the other
 * members; and with a row of nothing when the box is paused.
 */
export function renewSql(t: BoxTables): string {
  return `
    WITH beat AS (
      INSERT INTO ${t.member} AS m (owner, relay_order, beat, lease_ms, expires_at, first_lane)
      VALUES ($1::text, $3::text, 1, $2::double precision, ${inMs("$2::double precision")}, ${t.firstLane})
      ON CONFLICT (owner) DO UPDATE SET beat = m.beat + 1, expires_at = excluded.expires_at
    )
    SELECT lane, epoch, NULL AS owner, NULL AS relay_order, NULL AS beat, NULL AS lease_ms, NULL AS lives, NULL AS shares
    FROM ${t.lane} WHERE owner = $1::text
    UNION ALL
    SELECT NULL, NULL, owner, relay_order, beat, lease_ms,
           expires_at > clock_timestamp(), expires_at > ${inMs("lease_ms / 2")}
    FROM ${t.member} WHERE owner <> $1::text AND first_lane = ${t.firstLane}
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM ${t.state} WHERE ${isPaused(t)}`;
}

/**
 * Takes up to $2 lanes for $1, beginning at lane $3, so that several who come at once do not all want the same. Who is
 * among the owners $4, and has not beaten since the beats $5, counts as dead. With $6 it takes all or none; and none of $7.
 *
 * It looks first and locks only what seems free, so that a relay that stands by disturbs nobody. What it locked may
 * have changed while it waited, though, and a statement sees the other tables as they were when it began: a lane whose
 * epoch has moved since was taken by someone whose lease is still invisible here. The owner's lease is locked as well:
 * a renewal in progress is waited for, and then it stands.
 */
export function ownSql(t: BoxTables): string {
  const lives = (m: string) => `${m}.expires_at > clock_timestamp() AND NOT EXISTS (
          SELECT FROM unnest($4::text[], $5::bigint[]) AS d (owner, beat) WHERE d.owner = ${m}.owner AND d.beat = ${m}.beat)`;
  return `
    WITH seen AS MATERIALIZED (
      SELECT k.lane, k.epoch FROM ${t.lane} k
      WHERE ${isOfBox(t, "k.lane")} AND k.owner IS DISTINCT FROM $1::text AND k.lane <> ALL ($7::integer[]) AND NOT EXISTS (
        SELECT FROM ${t.member} m WHERE m.owner = k.owner AND ${lives("m")})
        AND EXISTS (SELECT FROM ${t.member} WHERE owner = $1::text AND expires_at > clock_timestamp())
        AND NOT EXISTS (SELECT FROM ${t.state} WHERE ${isPaused(t)})
      ORDER BY (k.lane + $3::integer) % ${laneCount} LIMIT $2::integer
    ), locked AS MATERIALIZED (
      SELECT lane, epoch, owner, clean FROM ${t.lane} WHERE lane IN (SELECT lane FROM seen) ORDER BY lane FOR UPDATE
    ), rival AS MATERIALIZED (
      SELECT m.owner, m.expires_at, m.beat FROM ${t.member} m
      WHERE m.owner IN (SELECT owner FROM locked)
      ORDER BY m.owner FOR UPDATE OF m
    ), free AS MATERIALIZED (
      SELECT l.lane, l.clean FROM locked l JOIN seen USING (lane, epoch)
      WHERE NOT EXISTS (SELECT FROM rival r WHERE r.owner = l.owner AND ${lives("r")})
    ), enough AS MATERIALIZED (
      SELECT NOT $6::boolean OR
        (SELECT count(*) FROM free) + (SELECT count(*) FROM ${t.lane} WHERE owner = $1::text) = ${laneCount} AS yes
    ), left_behind AS (
      DELETE FROM ${t.member} m USING rival r WHERE m.owner = r.owner AND r.expires_at <= clock_timestamp()
    )
    UPDATE ${t.lane} k SET epoch = k.epoch + 1, owner = $1::text, clean = false
    FROM free, enough WHERE k.lane = free.lane AND enough.yes
    RETURNING k.lane, k.epoch, free.clean`;
}

/** Gives back the lanes $2 of the epochs $3. The epoch stays: until somebody takes a lane, what was sent may be settled. */
export function releaseSql(t: BoxTables): string {
  return `
    WITH mine AS MATERIALIZED (
      SELECT k.lane FROM ${t.lane} k JOIN unnest($2::integer[], $3::bigint[]) AS e (lane, epoch) USING (lane, epoch)
      WHERE k.owner = $1::text ORDER BY k.lane FOR NO KEY UPDATE OF k
    )
    UPDATE ${t.lane} k SET owner = NULL, clean = true FROM mine WHERE k.lane = mine.lane`;
}

/** Gives back everything, and leaves; so do those who stood by without a lane when they died, long ago. */
export function leaveSql(t: BoxTables): string {
  return `
    WITH mine AS MATERIALIZED (
      SELECT lane FROM ${t.lane} WHERE owner = $1::text ORDER BY lane FOR NO KEY UPDATE
    ), freed AS (
      UPDATE ${t.lane} k SET owner = NULL, clean = true FROM mine WHERE k.lane = mine.lane RETURNING k.lane
    )
    DELETE FROM ${t.member}
    WHERE (owner = $1::text OR expires_at < clock_timestamp() - interval '1 day')
      AND (SELECT count(*) FROM freed) >= 0  -- after the lanes, as everywhere`;
}

/** Whether a row's key is held: as a value, since an EXISTS would be answered by reading all holds into a hash. */
function isHeld(t: BoxTables): string {
  return `coalesce((SELECT true FROM ${t.hold} h WHERE h.lane = p.lane AND h.key = p.key), false)`;
}

/**
 * Which transactions may be open, as `oldest:next:list:more`: those that are listed, and those from `next` on that have their
 * number already, `more` of them. A snapshot does not list these, since `next` follows the last one that has *ended*. The
 * second part is found out after the rows were seen, so it misses nobody who had drawn a position before one of them.
 */
const openNow = "pg_current_snapshot()::text || ':' || age(pg_snapshot_xmax(pg_current_snapshot())::xid)";

/** In place of a message: in `id`, the transactions that were open. */
const openRow = selectedColumns
  .map(([name, type]) => (name === "id" ? openNow : `NULL::${type === "jsonb" ? "text" : type}`))
  .join(", ");

/**
 * Of the lanes $1, the first $2 rows of `pending` beyond the positions $3. Each lane is a short walk along the primary key;
 * sorting across lanes would read all of them, and starting from the front each time would walk over everything that was
 * deleted and not yet vacuumed away. $4 is the greatest of $2: a limit that the planner knows, or it would think of the
 * whole table, and compile the statement for so much work.
 *
 * One row more, without a lane, has in `id` the transactions that were open.
 */
export function readSql(t: BoxTables): string {
  return `
    SELECT p.lane, p.position, p.attempts, p.crashes, ${isHeld(t)} AS held, ${messageSelection("p")}
    FROM unnest($1::integer[], $2::integer[], $3::bigint[]) AS l (lane, n, after)
    CROSS JOIN LATERAL (
      SELECT * FROM (
        SELECT * FROM ${t.pending} WHERE lane = l.lane AND position > l.after ORDER BY position LIMIT $4::integer
      ) AS first ORDER BY position LIMIT l.n
    ) AS p
    UNION ALL
    SELECT NULL, NULL, 0, 0, false, ${openRow}`;
}

/**
 * Of the lanes $1, the first $2 rows of `wait` that are due, shared among the keys that are due longest: each is a short walk,
 * however many wait there. A hold may have nothing behind it: it must not take the place of one that has. The time is the statement's, since the index could not be asked for one that changes while it
 * runs. $3 is the greatest of $2, as above.
 */
export function dueSql(t: BoxTables): string {
  return `
    SELECT w.lane, w.position, w.attempts, w.crashes, w.turn, false AS held, ${messageSelection("w")}
    FROM unnest($1::integer[], $2::integer[]) AS l (lane, n)
    CROSS JOIN LATERAL (
      SELECT key, (l.n + count(*) OVER () - 1) / count(*) OVER () AS share
      FROM (SELECT key FROM ${t.hold} h WHERE lane = l.lane AND due_at <= statement_timestamp()
              AND (SELECT true FROM ${t.wait} w WHERE w.lane = h.lane AND w.hold_key = h.key LIMIT 1)
            ORDER BY due_at LIMIT least(l.n, $3::integer)) AS h
    ) AS due
    CROSS JOIN LATERAL (
      SELECT * FROM (
        SELECT * FROM ${t.wait} WHERE lane = l.lane AND hold_key = due.key ORDER BY position LIMIT $3::integer
      ) AS first ORDER BY position LIMIT due.share
    ) AS w`;
}

/**
 * Appends the first $1 scheduled messages that are due; one at a time, or two of one key could change places. As for any
 * append, the transaction has its number before they get their positions.
 */
export function promoteSql(t: BoxTables): string {
  return `
    WITH turn AS MATERIALIZED (
      SELECT pg_try_advisory_xact_lock(hashtextextended('postbox schedule ' || '${t.scheduled}', 0)) AS got
    ), due AS (
      DELETE FROM ${t.scheduled}
      WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM ${t.scheduled} WHERE due_at <= statement_timestamp() AND (SELECT got FROM turn)
        ORDER BY due_at, position LIMIT $1::integer FOR UPDATE))
      RETURNING due_at, position, lane, ${columns}
    ), anew AS (
      INSERT INTO ${t.pending} (lane, ${columns})
      SELECT lane, ${columns} FROM due WHERE ${numbered} ORDER BY due_at, position
      RETURNING lane
    )
    SELECT (SELECT count(*) FROM anew) AS count,
           (SELECT extract(epoch FROM min(due_at) - clock_timestamp()) * 1000 FROM ${t.scheduled}
            WHERE due_at > statement_timestamp()) AS next_in_ms`;
}

/**
 * Of the lanes $1, the rows of `pending` beyond $2 and up to $3 that are not among ($4, $5), with their age: the first $6.
 * Lane by lane: joined as it is said, all of `pending` would be read. One row more, as above.
 */
export function lateSql(t: BoxTables): string {
  return `
    (SELECT p.lane, p.position, p.attempts, p.crashes, ${isHeld(t)} AS held,
           extract(epoch FROM clock_timestamp() - p.created_at) * 1000 AS age_ms, ${messageSelection("p")}
    FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS g (lane, after, up_to)
    CROSS JOIN LATERAL (
      SELECT * FROM ${t.pending} WHERE lane = g.lane AND position > g.after AND position <= g.up_to
      ORDER BY position OFFSET 0) AS p
    WHERE NOT EXISTS (
      SELECT FROM unnest($4::integer[], $5::bigint[]) AS k (lane, position)
      WHERE k.lane = p.lane AND k.position = p.position)
    ORDER BY p.position LIMIT $6::integer)
    UNION ALL
    SELECT NULL, NULL, 0, 0, false, 0, ${openRow}`;
}
