import { laneCount } from "../../internal/lane.js";
import { mostDataBytes, usualContentType } from "../message-record.js";
import { messageColumns, messageSelection, selectedColumns } from "./message-columns.js";
import type { tablesNamed } from "./names.js";
import { type PlannedFunction, plannedFunction } from "./planned-function.js";
import { numbered } from "./write-sql.js";

const columns = messageColumns.map(([name]) => name).join(", ");

/*
 * Ownership of a box, and reading it. Locks are always taken in the same order, lanes ascending and then members, so
 * that no two of these statements and a settle wait for each other. The last parameter of each is the number of the box.
 */

export type Tables = ReturnType<typeof tablesNamed>;

const inMs = (ms: string) => `clock_timestamp() + (${ms})::double precision * interval '1 millisecond'`;
const isPaused = (box: string) => `number = ${box} AND paused_at IS NOT NULL`;

/**
 * Touches the member only, so that a renewal never waits for a settle. Answers with the owner's lanes and with the other
 * members; and with a row of NULLs when the box is paused.
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
 * Takes up to $2 lanes for $1, beginning at lane $3, so that relays that start together do not all want the same. A member
 * among the owners $4 that has not renewed since the beats $5 counts as dead. It takes none if it would get fewer than
 * $6, and never the lanes $7.
 *
 * It looks first and locks only lanes that seem free, so that a relay that stands by disturbs no other. A locked lane may
 * have changed while this waited, and a statement sees the other tables as they were when it began: a lane whose epoch has
 * changed since belongs to an owner whose lease is still invisible here. The owner's lease is locked as well: a renewal in
 * progress is waited for, and then the lease stands.
 *
 * Epochs follow the clock: after a failover that lost the latest take-overs, a new epoch still differs from every earlier one.
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

/** Gives back the lanes $2 of the epochs $3. The epoch stays: until another owner takes a lane, sent rows may be settled. */
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

/** Gives back everything, and leaves; removes members, too, that died long ago without a lane. */
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
 * What a read answers with: a row's columns, those of its message last. What nearly every row has in common is NULL, which costs
 * next to nothing: no attempts, no crashes, a key that is not held, JSON as content, no extensions and no headers.
 */
const rowColumns = ["lane integer", "position bigint", "attempts integer", "crashes integer", "held boolean"];
const rowSelection = (row: string, held: string) =>
  `${row}.lane, ${row}.position, nullif(${row}.attempts, 0), nullif(${row}.crashes, 0), ${held}`;
const recordSelection = (row: string) => messageSelection(row, commonValues);
const commonValues = { content_type: `'${usualContentType}'`, extensions: "'{}'::jsonb", headers: "'{}'::jsonb" };
const recordColumns = selectedColumns.map(([name, type]) => `${name} ${type === "jsonb" ? "text" : type}`);

/**
 * Whether a row's key is held: as a value, since an EXISTS would be answered by reading all holds into a hash. Mostly nothing is held in
 * the lanes $1 of the box, which is found out once.
 */
function isHeld(t: Tables, box: string, row: string): string {
  return `CASE WHEN (SELECT true FROM ${t.hold} h WHERE (h.box + 0) = ${box} AND (h.lane + 0) = ANY ($1) LIMIT 1)
          THEN (SELECT true FROM ${t.hold} h WHERE h.box = ${box} AND h.lane = ${row}.lane AND h.key = ${row}.key)
          END`;
}

/** About what a row takes in memory. The length of data is known without fetching it; too much of it is not read. */
const bytesOf = (row: string) =>
  `(CASE WHEN octet_length(${row}.data) <= ${mostDataBytes} THEN octet_length(${row}.data) ELSE 0 END + pg_column_size(${row}.extensions) + pg_column_size(${row}.headers) + 512)`;

/**
 * Which transactions may be open, as `oldest:next:list:more`: the listed ones, and those from `next` on that have their number
 * already, `more` of them. A snapshot does not list these, since `next` follows the last one that has *ended*. The second part
 * is determined after the rows were seen, so it includes every transaction that had drawn a position before one of them.
 */
const openNow = "pg_current_snapshot()::text || ':' || age(pg_snapshot_xmax(pg_current_snapshot())::xid)";

/** One more row, without a lane: in `id` the open transactions, in `position` the last position drawn, in `source` the server. */
function statusRow(t: Tables, before: readonly string[], position: string): string {
  const values: Readonly<Record<string, string>> = { id: openNow, source: `${t.server}()` };
  const message = selectedColumns.map(([name, type]) => values[name] ?? `NULL::${type === "jsonb" ? "text" : type}`);
  return `SELECT NULL::integer, ${position}, 0, 0, false, ${[...before, ...message].join(", ")}`;
}

/**
 * Of the lanes $1, the first $2 rows of `pending` beyond the positions $3, until they take $5 bytes, lane by lane in the order
 * given. Each lane is a short walk along the primary key; starting from the front each time would walk over every row that was
 * deleted and not yet vacuumed away. $4 is the greatest of $2.
 *
 * The last position drawn is read before the snapshot of the rows: every position up to it belongs to a row that is visible, to
 * a transaction that is still open, or to one that was rolled back. A sequence that caches positions per session gives no such
 * promise, so it counts as 0 then.
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
 * Of the lanes $1, the first $2 rows of `wait` that are due, until they take $4 bytes, shared among the keys that are due
 * longest, without the keys $5. Each is a short walk, however many rows wait. A hold may have no rows behind it: it must not take
 * the place of one that has. $3 is the greatest of $2. The time is the statement's: an index cannot be asked for a time that changes.
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
 * Of the lanes $1, the rows of `pending` beyond $2 and up to $3 that are not among ($4, $5), with their age: the first $6 in
 * order of position, until they take $7 bytes. One row more, as above.
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
 * Appends the first $1 scheduled messages that are due, until they take $2 bytes; one call at a time, or two of one key could change
 * places. It passes over what an open transaction has replaced or cancelled: a user's transaction must not hold up all others. As for any append, the transaction has its number before they get their positions.
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
