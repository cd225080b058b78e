import { unroutablePrefix } from "../box-problems.js";
import { waitKey } from "./admin-sql.js";
import { rowWith } from "./by-key.js";
import { partitionsSql } from "./done-partitions.js";
import type { BoxTables } from "./names.js";

/*
 * The queries of a health check. Each returns one JSON text with times in ms, and reads a few rows only, however many
 * there are.
 */

const now = "statement_timestamp()";
const since = (time: string) => `extract(epoch FROM ${now} - ${time}) * 1000::numeric`;

/** How many of the oldest waiting messages per lane are inspected, so that a check stays cheap however many wait. */
const looksAt = 5;

/**
 * The state of a box, as `BoxSight` describes it. $1 and $2 limit how many parked messages and held keys are counted.
 * The oldest message of a lane is the one with the lowest position; finding the true oldest would read every row.
 */
export function boxSightSql(t: BoxTables): string {
  return `
    WITH lanes AS MATERIALIZED (
      SELECT l.lane, m.owner
      FROM ${t.lane} l LEFT JOIN ${t.member} m ON m.box = l.box AND m.owner = l.owner AND m.expires_at > ${now}
      WHERE l.box = ${t.box}
    ), unsent AS MATERIALIZED (
      SELECT l.owner, 'pending' AS status, p.id, p.topic, p.created_at AS since
      FROM lanes l CROSS JOIN LATERAL (
        SELECT id, topic, created_at FROM ${t.pending} WHERE box = ${t.box} AND lane = l.lane ORDER BY position LIMIT 1) AS p
      UNION ALL
      SELECT l.owner, 'waiting', w.id, w.topic, w.due_at
      FROM lanes l CROSS JOIN LATERAL (
        SELECT h.due_at, w.id, w.topic
        FROM ${t.hold} h CROSS JOIN LATERAL (${rowWith("x.id, x.topic", waitKey(t), ["h.box", "h.lane", "h.key"])}) AS w
        WHERE (h.box + 0) = ${t.box} AND (h.lane + 0) = l.lane AND h.due_at <= ${now} ORDER BY h.due_at LIMIT 1) AS w
    ), retried AS MATERIALIZED (
      SELECT w.* FROM lanes l CROSS JOIN LATERAL (
        SELECT x.* FROM (
          SELECT lane, hold_key, id, topic, created_at, attempts, last_error
          FROM ${t.wait} WHERE box = ${t.box} AND lane = l.lane ORDER BY position LIMIT ${looksAt}) AS x
        CROSS JOIN LATERAL (
          SELECT FROM ${t.hold} h WHERE h.box = ${t.box} AND h.lane = x.lane AND h.key = x.hold_key AND h.due_at < 'infinity') AS h
        WHERE x.last_error IS NOT NULL) AS w
    ), late AS MATERIALIZED (
      SELECT lane, id, topic, due_at FROM ${t.scheduled} WHERE box = ${t.box} AND due_at <= ${now} ORDER BY due_at, position LIMIT 1
    ), held AS MATERIALIZED (
      SELECT h.key FROM lanes l CROSS JOIN LATERAL (
        SELECT key FROM ${t.hold} WHERE (box + 0) = ${t.box} AND (lane + 0) = l.lane AND due_at >= 'infinity' AND left(key, 1) <> chr(1)
        ORDER BY due_at LIMIT $2::integer) AS h
      LIMIT $2::integer
    )
    SELECT json_build_object(
      'unsent', (SELECT json_build_object('status', status, 'id', id, 'topic', topic, 'ageMs', ${since("since")})
                 FROM unsent ORDER BY since LIMIT 1),
      'retried', (SELECT json_build_object('id', id, 'topic', topic, 'attempts', attempts, 'lastError', last_error,
                    'ageMs', ${since("created_at")}) FROM retried ORDER BY created_at LIMIT 1),
      'unroutable', (SELECT json_build_object('id', id, 'topic', topic, 'attempts', attempts, 'lastError', last_error,
                       'ageMs', ${since("created_at")})
                     FROM retried WHERE starts_with(last_error, '${unroutablePrefix}') ORDER BY created_at LIMIT 1),
      'late', (SELECT json_build_object('id', id, 'topic', topic, 'lateMs', ${since("due_at")}) FROM late),
      'unowned', (SELECT count(*) FROM lanes WHERE owner IS NULL),
      'unsentUnowned', EXISTS (SELECT FROM unsent WHERE owner IS NULL)
                         OR EXISTS (SELECT FROM late JOIN lanes USING (lane) WHERE owner IS NULL),
      'relays', (SELECT json_agg(json_build_object('owner', m.owner, 'order', m.relay_order, 'beat', m.beat,
                   'lanes', (SELECT count(*) FROM lanes l WHERE l.owner = m.owner)))
                 FROM ${t.member} m WHERE m.expires_at > ${now} AND m.box = ${t.box}),
      'paused', (SELECT json_build_object('at', extract(epoch FROM paused_at) * 1000::numeric, 'forMs', ${since("paused_at")})
                 FROM ${t.boxes} WHERE number = ${t.box} AND paused_at IS NOT NULL),
      'parked', (SELECT count(*) FROM (SELECT FROM ${t.parked} WHERE box = ${t.box} LIMIT $1::integer) AS p),
      'heldForGood', (SELECT count(*) FROM held),
      'heldKeys', (SELECT json_agg(key) FROM (SELECT key FROM held LIMIT 10) AS h)
    )::text AS sight`;
}

/** The tables that grow, by their names in `BoxTables`. */
const growing = ["pending", "wait", "hold", "scheduled", "parked", "done", "overflow"] as const;

/**
 * How the server maintains the tables of a box: what holds back vacuum, how large they are, and their partitions. Run
 * `plainTimes` first.
 */
export function upkeepSql(t: BoxTables): string {
  const tables = growing.map((part) => `('${part}', '${t[part]}'::regclass)`).join(", ");
  return `
    SELECT json_build_object(
      'now', extract(epoch FROM ${now}) * 1000::numeric,
      'holders', (SELECT json_agg(h ORDER BY transactions DESC) FROM (${holdersSql(t)}) AS h),
      'writers', (SELECT json_agg(w ORDER BY transactions DESC) FROM (${writersSql}) AS w),
      'sequence', (SELECT to_json(s) FROM (${sequenceSql(t)}) AS s),
      'tables', (SELECT json_agg(s) FROM (${sizesSql(tables)}) AS s),
      'partitions', (SELECT json_agg(json_build_object('from', from_ms, 'to', to_ms)) FROM (${partitionsSql(t)}) AS p)
    )::text AS upkeep`;
}

/** How long ago a row last went to the overflow; no row if none did. */
export function overflowedSql(t: BoxTables): string {
  return `SELECT ${since("done_at")} AS ms FROM ${t.overflow} ORDER BY done_at DESC LIMIT 1`;
}

/**
 * Everything that keeps vacuum from removing rows of this database. What the role may not see of other sessions is
 * NULL, but every role may see that a session exists and how far behind it is. Sessions that run VACUUM hold back
 * nothing, and WAL senders are in no database. `inactive_since` exists since version 17.
 */
function holdersSql(t: BoxTables): string {
  return `
      SELECT 'transaction' AS kind, a.pid::text AS name, a.usename AS "user", a.application_name AS application, a.state,
             left(a.query, 1000) AS query, NULL::boolean AS active, ${since("a.xact_start")} AS "ageMs",
             greatest(age(a.backend_xmin), age(a.backend_xid)) AS transactions
      FROM pg_stat_activity a
      WHERE coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL AND a.pid <> pg_backend_pid()
        AND (a.datname = current_database() OR coalesce(a.datid, 0) = 0 AND coalesce(a.backend_type, 'walsender') = 'walsender')
        AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
        AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = a.pid)
        AND NOT (${isOwn(t)})
      UNION ALL
      SELECT 'prepared transaction', gid, owner, NULL, NULL, NULL, NULL, ${since("prepared")}, age(transaction)
      FROM pg_prepared_xacts WHERE database = current_database()
      UNION ALL
      SELECT 'replication slot', slot_name, NULL, NULL, NULL, NULL, active,
             ${since("(to_jsonb(s) ->> 'inactive_since')::timestamptz")}, age(xmin)
      FROM pg_replication_slots s WHERE xmin IS NOT NULL
      ORDER BY transactions DESC LIMIT 100`;
}

/**
 * Whether a statement is a short one of Postbox, such as a relay's settle: alone in its transaction, on tables of this
 * schema, and not running for long.
 */
function isOwn(t: BoxTables): string {
  const [schema] = t.lane.split(".");
  return `coalesce(a.state = 'active' AND a.query_start = a.xact_start AND strpos(a.query, '${schema}.') > 0
          AND a.xact_start > ${now} - interval '1 minute', false)`;
}

/** The oldest transactions of the whole server that have a number. A total order waits for them. */
const writersSql = `
      SELECT * FROM (
        SELECT 'transaction' AS kind, a.pid::text AS name, a.datname AS database, a.usename AS "user",
               a.application_name AS application, ${since("a.xact_start")} AS "ageMs", age(a.backend_xid) AS transactions
        FROM pg_stat_activity a WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid()
        UNION ALL
        SELECT 'prepared transaction', gid, database, owner, NULL, ${since("prepared")}, age(transaction) FROM pg_prepared_xacts
      ) AS w ORDER BY transactions DESC LIMIT 100`;

/** The sequence that positions come from. */
function sequenceSql(t: BoxTables): string {
  return `
      SELECT seqrelid::regclass::text AS name, seqcache AS cache, seqincrement AS increment, seqcycle AS cycles
      FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence('${t.pending}', 'position')::regclass`;
}

/**
 * If the statistics were lost, for example in a crash, they count neither live nor dead rows. The count of the last
 * vacuum is the best estimate then.
 */
function sizesSql(tables: string): string {
  return `
      SELECT part, n.nspname || '.' || c.relname AS "table",
             coalesce(pg_total_relation_size(c.oid), 0)
               + (SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0) FROM pg_inherits WHERE inhparent = c.oid) AS bytes,
             CASE WHEN pg_stat_get_live_tuples(c.oid) = 0 AND pg_stat_get_dead_tuples(c.oid) = 0 THEN c.reltuples
                  ELSE pg_stat_get_live_tuples(c.oid) END AS "liveRows",
             (SELECT coalesce(sum(s.avg_width), 1000) FROM pg_stats s
              WHERE s.schemaname = n.nspname AND s.tablename = c.relname) AS "rowBytes"
      FROM (VALUES ${tables}) AS g (part, oid) JOIN pg_class c ON c.oid = g.oid JOIN pg_namespace n ON n.oid = c.relnamespace`;
}
