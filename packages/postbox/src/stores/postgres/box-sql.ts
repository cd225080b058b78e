import { laneCount } from "../../internal/lane.js";
import { mostDataBytes, usualContentType } from "../message-record.js";
import { messageColumns, messageSelection, selectedColumns } from "./message-columns.js";
import type { tablesNamed } from "./names.js";
import { type PlannedFunction, plannedFunction } from "./planned-function.js";
import { numbered } from "./write-sql.js";

const columns = messageColumns.map(([name]) => name).join(", ");

/*
 * Ownership of a box, and reads from it. Locks are always taken in the same order, lanes ascending and then members, so
 * these statements cannot deadlock with each other or with a settle. The last parameter of each is the number of the
 * box.
 */

export type Tables = ReturnType<typeof tablesNamed>;

const inMs = (ms: string) => `clock_timestamp() + (${ms})::double precision * interval '1 millisecond'`;
const isPaused = (box: string) => `number = ${box} AND paused_at IS NOT NULL`;

/**
 * Writes to the member only, so that a renewal never waits for a settle. Returns the owner's lanes and the other
 * members, and a row of NULLs if the box is paused.
 */
export function renewFunction(t: Tables): PlannedFunction {
  return plannedFunction({
    name: t.function("renew"),
    params: ["text", "double precision", "text", "integer"],
    returns: [
      "lane integer",
      "epoch bigint",
      "owner text",
      "relay_order text",
      "beat bigint",
      "lease_ms double precision",
      "expires_in_ms double precision",
    ],
    body: `
      INSERT INTO ${t.member} AS m (box, owner, relay_order, beat, lease_ms, expires_at)
      VALUES ($4, $1, $3, 1, $2, ${inMs("$2")})
      ON CONFLICT (box, owner) DO UPDATE SET beat = m.beat + 1, expires_at = excluded.expires_at;
      RETURN QUERY
        SELECT k.lane, k.epoch, NULL::text, NULL::text, NULL::bigint, NULL::double precision, NULL::double precision
        FROM ${t.lane} k WHERE k.box = $4 AND k.owner = $1
        UNION ALL
        SELECT NULL, NULL, m.owner, m.relay_order, m.beat, m.lease_ms,
               (extract(epoch FROM m.expires_at - clock_timestamp()) * 1000::numeric)::double precision
        FROM ${t.member} m WHERE m.box = $4 AND m.owner <> $1
        UNION ALL
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM ${t.boxes} WHERE ${isPaused("$4")};`,
  });
}

/**
 * Takes up to $2 lanes for $1. It starts at lane $3, so that relays that start together prefer different lanes. A
 * member among the owners $4 that has not renewed since its heartbeat in $5 counts as dead. It takes no lanes if it
 * would get fewer than $6, and never takes the lanes $7.
 *
 * It first reads and then locks only lanes that seem free, so that a standby relay disturbs no other.
 *
 * A locked lane may have changed while this statement waited, and the statement sees other tables as of its start. If a
 * lane's epoch has changed, its owner's lease may still be invisible here. So the owner's lease is locked as well: a
 * renewal in progress is waited for and then counts.
 *
 * Epochs follow the clock. After a failover that lost the latest take-overs, a new epoch still differs from all earlier
 * ones.
 */
export function ownFunction(t: Tables): PlannedFunction {
  const lives = (m: string) => `${m}.expires_at > clock_timestamp() AND NOT EXISTS (
            SELECT FROM unnest($4, $5) AS d (owner, beat) WHERE d.owner = ${m}.owner AND d.beat = ${m}.beat)`;
  return plannedFunction({
    name: t.function("own"),
    params: ["text", "integer", "integer", "text[]", "bigint[]", "integer", "integer[]", "integer"],
    returns: ["lane integer", "epoch bigint", "clean boolean"],
    body: `
      RETURN QUERY
      WITH seen AS MATERIALIZED (
        SELECT k.lane, k.epoch FROM ${t.lane} k
        WHERE k.box = $8 AND k.owner IS DISTINCT FROM $1 AND k.lane <> ALL ($7)
          AND coalesce((SELECT false FROM ${t.member} m WHERE m.box = $8 AND m.owner = k.owner AND ${lives("m")}), true)
          AND (SELECT true FROM ${t.member} m WHERE m.box = $8 AND m.owner = $1 AND m.expires_at > clock_timestamp())
          AND coalesce((SELECT false FROM ${t.boxes} WHERE ${isPaused("$8")}), true)
        ORDER BY (k.lane + $3) % ${laneCount} LIMIT $2
      ), locked AS MATERIALIZED (
        SELECT k.lane, k.epoch, k.owner, k.clean FROM ${t.lane} k
        WHERE k.box = $8 AND k.lane = ANY (ARRAY(SELECT lane FROM seen)) ORDER BY k.lane FOR UPDATE
      ), rival AS MATERIALIZED (
        SELECT m.owner, m.expires_at, m.beat FROM ${t.member} m
        WHERE m.box = $8 AND m.owner = ANY (ARRAY(SELECT owner FROM locked)) ORDER BY m.owner FOR UPDATE
      ), free AS MATERIALIZED (
        SELECT l.lane, l.clean FROM locked l JOIN seen USING (lane, epoch)
        WHERE NOT EXISTS (SELECT FROM rival r WHERE r.owner = l.owner AND ${lives("r")})
      ), enough AS MATERIALIZED (
        SELECT count(*) >= $6 AS yes FROM free
      ), left_behind AS (
        DELETE FROM ${t.member} m
        WHERE m.box = $8 AND m.owner = ANY (ARRAY(SELECT r.owner FROM rival r WHERE r.expires_at <= clock_timestamp()))
      ), taken AS (
        UPDATE ${t.lane} k
        SET epoch = greatest(k.epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000::numeric)::bigint), owner = $1, clean = false
        WHERE k.box = $8 AND k.lane = ANY (ARRAY(SELECT lane FROM free)) AND (SELECT yes FROM enough)
        RETURNING k.lane, k.epoch
      )
      SELECT taken.lane, taken.epoch, free.clean FROM taken JOIN free USING (lane);`,
  });
}

/**
 * Releases the lanes $2 with the epochs $3. The epoch stays, so sent rows can be settled until another owner takes the
 * lane.
 */
export function releaseFunction(t: Tables): PlannedFunction {
  return plannedFunction({
    name: t.function("release"),
    params: ["text", "integer[]", "bigint[]", "integer"],
    returns: ["lane integer"],
    body: `
      RETURN QUERY
      WITH mine AS MATERIALIZED (
        SELECT k.lane, k.epoch FROM ${t.lane} k
        WHERE k.box = $4 AND k.lane = ANY ($2) AND k.owner = $1 ORDER BY k.lane FOR NO KEY UPDATE
      )
      UPDATE ${t.lane} k SET owner = NULL, clean = true
      WHERE k.box = $4 AND k.lane = ANY (ARRAY(SELECT lane FROM mine JOIN unnest($2, $3) AS e (lane, epoch) USING (lane, epoch)))
      RETURNING k.lane;`,
  });
}

/** Releases all lanes and removes the member. Also removes members that died long ago and have no lane. */
export function leaveFunction(t: Tables): PlannedFunction {
  return plannedFunction({
    name: t.function("leave"),
    params: ["text", "integer"],
    returns: ["owner text"],
    body: `
      PERFORM FROM ${t.lane} k WHERE k.box = $2 AND k.owner = $1 ORDER BY k.lane FOR NO KEY UPDATE;
      UPDATE ${t.lane} k SET owner = NULL, clean = true WHERE k.box = $2 AND k.owner = $1;
      RETURN QUERY
      DELETE FROM ${t.member} m
      WHERE m.box = $2 AND (m.owner = $1 OR m.expires_at < clock_timestamp() - interval '1 day')
      RETURNING m.owner;`,
  });
}

/**
 * The columns of a read: those of the row, then those of its message. Common values are NULL, which costs almost
 * nothing: no attempts, no crashes, a key that is not held, JSON as content type, no extensions and no headers.
 */
const rowColumns = ["lane integer", "position bigint", "attempts integer", "crashes integer", "held boolean"];
const rowSelection = (row: string, held: string) =>
  `${row}.lane, ${row}.position, nullif(${row}.attempts, 0), nullif(${row}.crashes, 0), ${held}`;
const recordSelection = (row: string) => messageSelection(row, commonValues);
const commonValues = { content_type: `'${usualContentType}'`, extensions: "'{}'::jsonb", headers: "'{}'::jsonb" };
const recordColumns = selectedColumns.map(([name, type]) => `${name} ${type === "jsonb" ? "text" : type}`);

/**
 * Whether a row's key is held. It is a scalar subquery, because the planner would answer EXISTS by hashing all holds.
 * Usually the lanes $1 of the box have no hold, which is checked once.
 */
function isHeld(t: Tables, box: string, row: string): string {
  return `CASE WHEN (SELECT true FROM ${t.hold} h WHERE (h.box + 0) = ${box} AND (h.lane + 0) = ANY ($1) LIMIT 1)
          THEN (SELECT true FROM ${t.hold} h WHERE h.box = ${box} AND h.lane = ${row}.lane AND h.key = ${row}.key)
          END`;
}

/**
 * The approximate size of a row in memory. The length of data is known without fetching it; data beyond the limit is
 * not read.
 */
const bytesOf = (row: string) =>
  `(CASE WHEN octet_length(${row}.data) <= ${mostDataBytes} THEN octet_length(${row}.data) ELSE 0 END + pg_column_size(${row}.extensions) + pg_column_size(${row}.headers) + 512)`;

/**
 * The transactions that may be open, as `oldest:next:list:more`: the listed ones, and `more` that already have a number
 * from `next` on. A snapshot does not list the latter, because its `next` follows the last transaction that has
 * *ended*. `more` is determined after the rows were read, so it includes every transaction that had drawn a position
 * before one of them.
 */
const openNow = "pg_current_snapshot()::text || ':' || age(pg_snapshot_xmax(pg_current_snapshot())::xid)";

/**
 * One more row without a lane. `id` has the open transactions, `position` the last position drawn, `source` the server.
 */
function statusRow(t: Tables, before: readonly string[], position: string): string {
  const values: Readonly<Record<string, string>> = { id: openNow, source: `${t.server}()` };
  const message = selectedColumns.map(([name, type]) => values[name] ?? `NULL::${type === "jsonb" ? "text" : type}`);
  return `SELECT NULL::integer, ${position}, 0, 0, false, ${[...before, ...message].join(", ")}`;
}

/**
 * Reads, for each of the lanes $1, the first $2 rows of `pending` beyond position $3, until they take $5 bytes; lane by
 * lane, in the given order. $4 is the greatest of $2. Each lane is a short scan of the primary key. A scan that always
 * started at the front would visit every deleted row that is not yet vacuumed.
 *
 * The last position drawn is read before the snapshot of the rows. So every position up to it belongs to a visible row,
 * an open transaction, or one that was rolled back. A sequence that caches positions per session breaks this promise;
 * then it counts as 0.
 */
export function readFunction(t: Tables): PlannedFunction {
  return plannedFunction({
    name: t.function("read"),
    params: ["integer[]", "integer[]", "bigint[]", "integer", "bigint", "integer"],
    returns: [...rowColumns, ...recordColumns],
    declare: "drawn bigint;",
    body: `
      SELECT s.last_value - CASE WHEN s.is_called THEN 0 ELSE 1 END INTO drawn FROM ${t.positions} s
      WHERE (SELECT q.seqcache FROM pg_sequence q WHERE q.seqrelid = '${t.positions}'::regclass) = 1;
      RETURN QUERY
        SELECT ${rowSelection("r", isHeld(t, "$6", "r"))}, ${recordSelection("r")}
        FROM (
          SELECT p.*, sum(${bytesOf("p")}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
          FROM unnest($1, $2, $3) AS l (lane, n, after)
          CROSS JOIN LATERAL (
            SELECT * FROM (
              SELECT x.* FROM ${t.pending} x
              WHERE x.box = $6 AND x.lane = l.lane AND x.position > l.after ORDER BY x.position LIMIT $4
            ) AS first LIMIT l.n
          ) AS p
        ) AS r
        WHERE coalesce(r.bytes_before < $5, true)
        UNION ALL
        ${statusRow(t, [], "coalesce(drawn, 0)")};`,
  });
}

/**
 * Reads, for each of the lanes $1, the first $2 due rows of `wait`, until they take $4 bytes. The keys $5 are left out,
 * and the others share the limit, longest due first. $3 is the greatest of $2. Each is a short index scan, however many
 * rows wait.
 *
 * A hold without rows must not take the place of one that has some. The time is the statement's, because an index
 * cannot serve a condition on a volatile time.
 */
export function dueFunction(t: Tables): PlannedFunction {
  return plannedFunction({
    name: t.function("due"),
    params: ["integer[]", "integer[]", "integer", "bigint", "text[]", "integer"],
    returns: [...rowColumns, "turn integer", ...recordColumns],
    body: `
      RETURN QUERY
        SELECT ${rowSelection("r", "false")}, r.turn, ${recordSelection("r")}
        FROM (
          SELECT w.*, sum(${bytesOf("w")}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
          FROM unnest($1, $2) AS l (lane, n)
          CROSS JOIN LATERAL (
            SELECT h.key, l.n / count(*) OVER () AS share
            FROM (SELECT h.key FROM ${t.hold} h
                  WHERE (h.box + 0) = $6 AND (h.lane + 0) = l.lane AND h.due_at <= statement_timestamp()
                    AND h.key NOT IN (SELECT k FROM unnest($5) AS k)
                    AND (SELECT true FROM ${t.wait} x
                         WHERE (x.box + 0) = $6 AND (x.lane + 0) = l.lane AND x.hold_key = h.key LIMIT 1)
                  ORDER BY h.due_at LIMIT least(l.n, $3)) AS h
          ) AS due
          CROSS JOIN LATERAL (
            SELECT * FROM (
              SELECT x.* FROM ${t.wait} x
              WHERE (x.box + 0) = $6 AND (x.lane + 0) = l.lane AND x.hold_key = due.key ORDER BY (x.position + 0) LIMIT $3
            ) AS first LIMIT due.share
          ) AS w
        ) AS r
        WHERE coalesce(r.bytes_before < $4, true);`,
  });
}

/**
 * Reads, from the lanes $1, the rows of `pending` beyond $2 and up to $3 that are not among ($4, $5), with their age.
 * It returns the first $6 by position, until they take $7 bytes. Ends with a status row, as above.
 */
export function lateFunction(t: Tables): PlannedFunction {
  return plannedFunction({
    name: t.function("late"),
    params: ["integer[]", "bigint[]", "bigint[]", "integer[]", "bigint[]", "integer", "bigint", "integer"],
    returns: [...rowColumns, "age_ms double precision", ...recordColumns],
    body: `
      RETURN QUERY
        SELECT ${rowSelection("r", isHeld(t, "$8", "r"))},
               (extract(epoch FROM clock_timestamp() - r.created_at) * 1000::numeric)::double precision, ${recordSelection("r")}
        FROM (
          SELECT f.*, sum(${bytesOf("f")}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
          FROM (
            SELECT p.* FROM unnest($1, $2, $3) AS g (lane, after, up_to)
            CROSS JOIN LATERAL (
              SELECT x.* FROM ${t.pending} x
              WHERE x.box = $8 AND x.lane = g.lane AND x.position > g.after AND x.position <= g.up_to
              ORDER BY x.position LIMIT $6 + cardinality($4)) AS p
            WHERE NOT EXISTS (
              SELECT FROM unnest($4, $5) AS k (lane, position) WHERE k.lane = p.lane AND k.position = p.position)
            ORDER BY p.position LIMIT $6
          ) AS f
        ) AS r
        WHERE coalesce(r.bytes_before < $7, true)
        UNION ALL
        ${statusRow(t, ["NULL::double precision"], "NULL::bigint")};`,
  });
}

/**
 * Appends the first $1 scheduled messages that are due, until they take $2 bytes. Only one call runs at a time; two
 * could swap messages of a key.
 *
 * It skips rows that an open transaction has replaced or cancelled, so that one user transaction cannot block all
 * others. As with any append, the transaction gets its number before the rows get their positions.
 */
export function promoteFunction(t: Tables): PlannedFunction {
  return plannedFunction({
    name: t.function("promote"),
    params: ["integer", "bigint", "integer"],
    returns: ["count bigint", "next_in_ms double precision"],
    declare: "appended bigint := 0; since timestamptz := statement_timestamp();",
    body: `
      IF pg_try_advisory_xact_lock(hashtextextended('postbox schedule ${t.scheduled} ' || $3, 0::bigint)) THEN
        WITH due AS (
          DELETE FROM ${t.scheduled}
          WHERE ctid = ANY (ARRAY(
            SELECT r.tid FROM (
              SELECT s.tid, sum(s.bytes) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
              FROM (SELECT x.ctid AS tid, ${bytesOf("x")} AS bytes FROM ${t.scheduled} x
                    WHERE x.box = $3 AND x.due_at <= statement_timestamp() ORDER BY x.due_at, x.position LIMIT $1 FOR UPDATE SKIP LOCKED) AS s
            ) AS r WHERE coalesce(r.bytes_before < $2, true)))
          RETURNING due_at, position, lane, ${columns}
        ), anew AS (
          INSERT INTO ${t.pending} (box, lane, ${columns})
          SELECT $3, lane, ${columns} FROM due WHERE ${numbered} ORDER BY due_at, position
          RETURNING lane
        )
        SELECT count(*) INTO appended FROM anew;
        -- What the bytes left behind is due now. If nothing was appended, what is due is locked: no reason to come again at once.
        IF appended > 0 THEN
          since := '-infinity';
        END IF;
      END IF;
      RETURN QUERY SELECT appended, (extract(epoch FROM (
        SELECT s.due_at FROM ${t.scheduled} s WHERE s.box = $3 AND s.due_at > since ORDER BY s.due_at LIMIT 1) - clock_timestamp()) * 1000::numeric
        )::double precision;`,
  });
}
