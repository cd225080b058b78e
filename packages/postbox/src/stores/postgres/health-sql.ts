import { waitKey } from "./admin-sql.js";
import { rowWith } from "./by-key.js";
import { partitionsSql } from "./done-partitions.js";
import type { BoxTables } from "./names.js";

/*
 * What a look at the health of a box asks. Each answers with one JSON text, in which times are ms, and reads a few rows
 * however many there are.
 */

const now = "statement_timestamp()";
const since = (time: string) => `extract(epoch FROM ${now} - ${time}) * 1000::numeric`;

/** Of the waiting messages of a lane, only the oldest ones are inspected, so that health stays cheap however many wait. */
const looksAt = 5;

/**
 * A box, as `BoxSight` has it. $1 and $2 are how many parked messages and held keys to count. What is oldest of a lane has
 * its lowest position: anything else would have to look at every row.
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
        WHERE x.last_error IS NOT NULL LIMIT 1) AS w
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

/** Tables that grow, by their names in `BoxTables`. */
const growing = ["pending", "wait", "hold", "scheduled", "parked", "done", "overflow"] as const;

/**
 * What the server does with the tables of a box: who holds back vacuum, how large they are, and which partitions there are.
 * Behind `plainTimes`.
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

/** How long ago something went to the overflow for the last time; no row if nothing did. */
export function overflowedSql(t: BoxTables): string {
  return `SELECT ${since("done_at")} AS ms FROM ${t.overflow} ORDER BY done_at DESC LIMIT 1`;
}

/**
 * Everything that keeps vacuum from removing rows of this database. What a role may not see of others' sessions is NULL; that
 * there is one, and how far behind it is, everybody may. Those who vacuum hold back nobody; who sends to a standby is in no database. `inactive_since` is of version 17.
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

/** A statement that is all of its transaction, on tables of this schema, and has not run for long: a relay's settle, say. */
function isOwn(t: BoxTables): string {
  const [schema] = t.lane.split(".");
  return `coalesce(a.state = 'active' AND a.query_start = a.xact_start AND strpos(a.query, '${schema}.') > 0
          AND a.xact_start > ${now} - interval '1 minute', false)`;
}

/** The transactions of the whole server that have had their numbers for longest: a total order waits for them. */
const writersSql = `
      SELECT * FROM (
        SELECT 'transaction' AS kind, a.pid::text AS name, a.datname AS database, a.usename AS "user",
               a.application_name AS application, ${since("a.xact_start")} AS "ageMs", age(a.backend_xid) AS transactions
        FROM pg_stat_activity a WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid()
        UNION ALL
        SELECT 'prepared transaction', gid, database, owner, NULL, ${since("prepared")}, age(transaction) FROM pg_prepared_xacts
      ) AS w ORDER BY transactions DESC LIMIT 100`;

/** Where positions come from. */
function sequenceSql(t: BoxTables): string {
  return `
      SELECT seqrelid::regclass::text AS name, seqcache AS cache, seqincrement AS increment, seqcycle AS cycles
      FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence('${t.pending}', 'position')::regclass`;
}

/** Statistics that were lost, as in a crash, count neither live nor dead rows; then the last vacuum's count is the best. */
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
