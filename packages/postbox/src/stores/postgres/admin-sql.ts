import type { MessageFilter, Status } from "../../admin.js";
import { laneCount, laneOf } from "../../internal/lane.js";
import { isAmong, type Key, rowWith } from "./by-key.js";
import { messageColumns, messageSelection } from "./message-columns.js";
import type { BoxTables } from "./names.js";
import { isMessage } from "./row-checks.js";
import { numbered } from "./write-sql.js";

/* The statements behind `Store.admin`. Whatever an operator passes is a parameter, never part of a statement's text. */

const columns = messageColumns.map(([name]) => name).join(", ");
const nothing = "NULL::timestamptz";
const noKey = "NULL::text AS schedule_key";

/** The messages of a status, with the same columns for every status. With `id`, only those with that id. */
function messagesOf(t: BoxTables, status: Status, id?: string): string {
  const row = (alias: string, holdKey = `${alias}.key`) =>
    `${alias}.lane, ${alias}.position, ${ofAlias(alias)}, ${alias}.created_at, ${holdKey} AS hold_key`;
  // OFFSET 0 makes PostgreSQL find the id first and filter afterwards. Of two conditions, the planner may take the
  // wrong one for the more selective.
  const of = (table: string) => (id === undefined ? table : `(SELECT * FROM ${table} WHERE id = ${id} OFFSET 0)`);
  const done = (table: string) => `
      SELECT ${row("d")}, d.attempts, d.failures -> -1 ->> 'error' AS last_error, d.failures,
             d.done_at AS updated_at, ${nothing} AS due_at, ${noKey}, d.done_at AS published_at
      FROM ${of(table)} d`;
  switch (status) {
    case "pending":
      return `
      SELECT ${row("p")}, p.attempts, p.last_error, p.failures,
             p.created_at AS updated_at, ${nothing} AS due_at, ${noKey}, ${nothing} AS published_at
      FROM ${of(t.pending)} p WHERE p.box = ${t.box}`;
    case "waiting":
      return `
      SELECT ${row("w", "w.hold_key")}, w.attempts, w.last_error, w.failures,
             w.updated_at, (${rowWith("x.due_at", holdKey(t), ["w.box", "w.lane", "w.hold_key"])}) AS due_at, ${noKey},
             ${nothing} AS published_at
      FROM ${of(t.wait)} w WHERE w.box = ${t.box}`;
    case "scheduled":
      return `
      SELECT ${row("s")}, 0 AS attempts, NULL::text AS last_error, NULL::jsonb AS failures,
             s.created_at AS updated_at, s.due_at, s.schedule_key, ${nothing} AS published_at
      FROM ${of(t.scheduled)} s WHERE (s.box + 0) = ${t.box}`;
    case "parked":
      return `
      SELECT ${row("p")}, p.attempts, p.reason AS last_error, p.failures,
             p.parked_at AS updated_at, ${nothing} AS due_at, ${noKey}, ${nothing} AS published_at
      FROM ${of(t.parked)} p WHERE p.box = ${t.box}`;
    case "done":
      if (t.consumer !== undefined) return remembered(t, t.consumer, id);
      return `${done(t.done)} UNION ALL ${done(t.overflow)}`;
  }
}

/** The messages that a consumer has handled and still remembers. */
function remembered(t: BoxTables, consumer: string, id?: string): string {
  const given: Readonly<Partial<Record<string, string>>> = {
    id: "r.id",
    source: "r.source",
    type: "r.type",
    event_version: "r.event_version",
    topic: "r.topic",
    content_type: "''",
    extensions:
      "CASE WHEN r.correlation_id IS NULL THEN '{}' ELSE jsonb_build_object('correlationid', r.correlation_id) END",
    headers: "'{}'::jsonb",
    data: "coalesce(r.data, '')",
  };
  const row = messageColumns.map(([name, type]) => `${given[name] ?? `NULL::${type}`} AS ${name}`);
  const byId = id === undefined ? "" : ` AND id = ${id}`;
  return `
      SELECT 0 AS lane, (extract(epoch FROM r.received_at) * 1000000::numeric)::bigint AS position, ${row.join(", ")}, r.received_at AS created_at, NULL::text AS hold_key,
             1 AS attempts, NULL::text AS last_error, NULL::jsonb AS failures,
             r.processed_at AS updated_at, ${nothing} AS due_at, ${noKey}, r.processed_at AS published_at
      FROM (SELECT * FROM ${t.memory} WHERE consumer = ${consumer}${byId} OFFSET 0) AS r WHERE r.processed_at IS NOT NULL`;
}

function ofAlias(alias: string): string {
  return messageColumns.map(([name]) => `${alias}.${name}`).join(", ");
}

/** A statement under construction, with its parameters. */
export class Statement {
  readonly params: unknown[] = [];

  /** Adds a parameter and returns its placeholder. */
  add(value: unknown, type: string): string {
    this.params.push(value);
    return `$${this.params.length}::${type}`;
  }
}

/** The conditions of a filter on a row of `m`, except those on ids. */
function conditions(statement: Statement, filter: MessageFilter): string[] {
  const found: string[] = [];
  const equal = (column: string, value: string | undefined) => {
    if (value !== undefined) found.push(`${column} = ${statement.add(value, "text")}`);
  };
  equal("m.type", filter.type);
  equal("m.topic", filter.topic);
  equal("m.key", filter.key);
  equal("m.source", filter.source);
  equal("m.extensions ->> 'correlationid'", filter.correlationId);
  const { createdFrom, createdBefore, minAttempts, error } = filter;
  if (createdFrom) found.push(`m.created_at >= ${statement.add(createdFrom.toISOString(), "timestamptz")}`);
  if (createdBefore) found.push(`m.created_at < ${statement.add(createdBefore.toISOString(), "timestamptz")}`);
  if (minAttempts !== undefined) found.push(`m.attempts >= ${statement.add(minAttempts, "integer")}`);
  if (error !== undefined) found.push(`strpos(m.last_error, ${statement.add(error, "text")}) > 0`);
  return found;
}

export interface Reach {
  readonly after?: number;
  readonly before?: number;
  readonly upTo?: number;
  /** Only rows that reached their status no later than this, in microseconds. */
  readonly until?: number;
  readonly limit: number;
}

/**
 * The messages of a status that match a filter, within reach: the first ones, or with `newest` the last ones.
 *
 * With ids, each id is looked up by its index. Otherwise, if the index starts with the lane, each lane is a short index
 * scan. One scan across all lanes would have to sort the table.
 */
export function selectSql(
  statement: Statement,
  t: BoxTables,
  {
    status,
    filter,
    reach,
    list,
    newest = false,
    once = false,
  }: {
    readonly status: Status;
    readonly filter: MessageFilter;
    readonly reach: Reach;
    readonly list: string;
    readonly newest?: boolean;
    /** For `done` only: returns the first row of each message, however often it was replayed. Defaults to false. */
    readonly once?: boolean;
  },
): string {
  const fits = conditions(statement, filter);
  if (reach.after !== undefined) fits.push(`m.position > ${statement.add(reach.after, "bigint")}`);
  if (reach.before !== undefined) fits.push(`m.position < ${statement.add(reach.before, "bigint")}`);
  if (reach.upTo !== undefined) fits.push(`m.position <= ${statement.add(reach.upTo, "bigint")}`);
  if (reach.until !== undefined) {
    const until = statement.add(reach.until, "bigint");
    fits.push(`m.updated_at <= 'epoch'::timestamptz + ${until}::double precision * interval '1 microsecond'`);
  }
  if (once) {
    const earlier = (table: string) =>
      `(SELECT count(*) FROM (SELECT FROM (SELECT e.position FROM ${table} e WHERE e.id = m.id OFFSET 0) AS e
        WHERE e.position < m.position LIMIT 1) AS e) = 0`;
    fits.push(earlier(t.done), earlier(t.overflow));
  }
  const limit = statement.add(reach.limit, "integer");
  const order = `ORDER BY m.position ${newest ? "DESC" : ""} LIMIT ${limit}`;
  const all = ["true", ...fits].join(" AND ");
  if (filter.ids !== undefined) {
    const ids = statement.add([...new Set(filter.ids)], "text[]");
    return `
    SELECT ${list} FROM unnest(${ids}) AS i (id)
    CROSS JOIN LATERAL (SELECT m.* FROM (${messagesOf(t, status, "i.id")}) AS m WHERE ${all} OFFSET 0) AS m
    ${order}`;
  }
  const from = `(${messagesOf(t, status)}) AS m`;
  if (status === "done" || status === "scheduled") return `SELECT ${list} FROM ${from} WHERE ${all} ${order}`;
  const every = Array.from({ length: laneCount }, (_, lane) => lane);
  const lanes = filter.key === undefined ? every : [laneOf(filter.key)];
  return `
    SELECT ${list} FROM unnest(${statement.add(lanes, "integer[]")}) AS l (lane)
    CROSS JOIN LATERAL (SELECT m.* FROM ${from} WHERE m.lane = l.lane AND ${all} ${order}) AS m
    ${order}`;
}

/** The columns of a row in a page. */
export const summary = `m.position, m.lane, m.id, m.type, m.topic, m.source, m.key, octet_length(m.data) AS bytes, m.attempts,
    m.last_error, m.created_at, m.updated_at, m.due_at, m.schedule_key, m.published_at`;

/** All columns, as `messageFrom` needs them. */
export const details = `m.position, m.lane, octet_length(m.data) AS bytes, m.attempts, m.last_error, m.created_at, m.updated_at,
    m.due_at, m.schedule_key, m.published_at, m.failures::text AS failures, ${messageSelection("m")}`;

/** The statistics of a box at one moment, as one JSON text. Times are ages in ms. $1 says whether to count `done`. */
export function statsSql(t: BoxTables): string {
  const count = (status: Status, table: string, since: string, where = "true") => `
      SELECT '${status}' AS status, topic, count(*) AS count, min(${since}) AS first
      FROM ${table} WHERE ${where} GROUP BY topic`;
  const own = `box = ${t.box}`;
  const done =
    t.consumer === undefined
      ? [t.done, t.overflow].map((table) => count("done", table, "done_at", "$1::boolean"))
      : [
          count(
            "done",
            t.memory,
            "processed_at",
            `$1::boolean AND consumer = ${t.consumer} AND processed_at IS NOT NULL`,
          ),
        ];
  return `
    WITH counted AS MATERIALIZED (${[
      count("pending", t.pending, "created_at", own),
      count("waiting", t.wait, "created_at", own),
      count("scheduled", t.scheduled, "due_at", own),
      count("parked", t.parked, "parked_at", own),
      ...done,
    ].join(" UNION ALL ")})
    SELECT json_build_object(
      'counts', (SELECT json_agg(json_build_object('status', status, 'topic', topic, 'count', count,
                   'ageMs', extract(epoch FROM clock_timestamp() - first) * 1000::numeric)) FROM counted),
      'held', (SELECT json_build_object('count', count(*), 'forGood', count(*) FILTER (WHERE due_at = 'infinity'))
               FROM ${t.hold} h WHERE ${own} AND left(key, 1) <> chr(1) AND (due_at > clock_timestamp()
                 OR EXISTS (SELECT FROM ${t.wait} w
                           WHERE (w.box + 0) = h.box AND (w.lane + 0) = h.lane AND w.hold_key = h.key))),
      'paused', EXISTS (SELECT FROM ${t.boxes} WHERE number = ${t.box} AND paused_at IS NOT NULL),
      'unowned', (SELECT count(*) FROM ${t.lane} k WHERE ${own} AND NOT EXISTS (
                    SELECT FROM ${t.member} m WHERE m.box = k.box AND m.owner = k.owner AND m.expires_at > clock_timestamp())),
      'owners', (SELECT json_agg(json_build_object('owner', owner, 'lanes', lanes, 'lives', lives))
                 FROM (SELECT owner, coalesce(lanes, 0) AS lanes, coalesce(expires_at > clock_timestamp(), false) AS lives
                       FROM (SELECT * FROM ${t.member} WHERE ${own}) AS m
                       FULL JOIN (SELECT owner, count(*) AS lanes FROM ${t.lane} WHERE ${own} AND owner IS NOT NULL
                                  GROUP BY owner) AS o
                         USING (owner)) AS shares)
    )::text AS stats`;
}

/**
 * Makes the waiting rows ($1, $2) due now and resets their attempts, in locked lanes. Leaves out rows whose key is held
 * until an operator releases it. Parameters from $3 on are for the audit.
 */
export function retryWaitingSql(t: BoxTables): string {
  const keys = "(SELECT DISTINCT lane, hold_key AS key FROM changed) AS i";
  return `
    WITH changed AS (
      UPDATE ${t.wait} w SET attempts = 0 WHERE ${isItem(t, t.wait)}
      RETURNING w.id, w.position, w.lane, w.hold_key
    ), due AS (
      UPDATE ${t.hold} h SET changes = changes + 1, due_at = least(due_at, clock_timestamp())
      WHERE ${isAmong(keys, holdKey(t), [`${t.box}`, "i.lane", "i.key"])} AND h.due_at <> 'infinity'
    ), ${audited(t, "retry", 3)}
    ${answer}`;
}

/** The rows ($1, $2). */
const items = "unnest($1::integer[], $2::bigint[]) AS i (lane, position)";
const itemPlace = (t: BoxTables) => [`${t.box}`, "i.lane", "i.position"];

function place(table: string): Key {
  return { table, columns: ["x.box", "x.lane", "x.position"] };
}

/** Whether a row of the table is one of the items. */
function isItem(t: BoxTables, table: string): string {
  return isAmong(items, place(table), itemPlace(t));
}

/** The holds ($1, $2). */
const holds = "(SELECT DISTINCT * FROM unnest($1::integer[], $2::text[]) AS k (lane, key)) AS i";

function holdKey(t: BoxTables): Key {
  return { table: t.hold, columns: ["x.box", "x.lane", "x.key"] };
}

/** The index key of the first row that waits under a hold. */
export function waitKey(t: BoxTables): Key {
  return { table: t.wait, columns: ["(x.box + 0)", "(x.lane + 0)", "x.hold_key"], last: "(x.position + 0)" };
}

/**
 * Records in the audit that the pending rows ($1, $2) are retried by another owner. Parameters from $3 on are for the
 * audit.
 */
export function retryPendingSql(t: BoxTables): string {
  return `
    WITH changed AS (
      SELECT p.id, p.position FROM ${items}
      CROSS JOIN LATERAL (${rowWith("x.id, x.position", place(t.pending), itemPlace(t))}) AS p
    ), ${audited(t, "retry", 3)}
    ${answer}`;
}

/** Takes the lanes $1, which are locked, from their owners. The next owner reads again what was in flight there. */
export function disownSql(t: BoxTables): string {
  return `UPDATE ${t.lane} SET epoch = epoch + 1, owner = NULL, clean = true WHERE box = ${t.box} AND lane = ANY ($1::integer[])`;
}

/** Locks lanes, so that nothing in them is settled before the transaction ends and rows that it reads stay the same. */
export function lockLanesSql(t: BoxTables): string {
  return `SELECT FROM ${t.lane} WHERE box = ${t.box} AND lane = ANY ($1::integer[]) ORDER BY lane FOR UPDATE`;
}

/**
 * Writes the audit entry for `changed`, which has the messages' ids. Parameters from $`first` on: actor, reason,
 * selection and token.
 */
function audited(t: BoxTables, action: string, first: number): string {
  const values = ["text", "text", "jsonb", "text"].map((type, index) => `$${first + index}::${type}`);
  return `audited AS (
      INSERT INTO ${t.audit} (box, action, actor, reason, selection, confirm, count, ids, last_position)
      SELECT ${t.name}, '${action}', ${values.join(", ")}, count(*), array_agg(id ORDER BY position), max(position)
      FROM changed HAVING count(*) > 0
    )`;
}

const answer = "SELECT count(*) AS count FROM changed";

/**
 * Sends the parked rows ($1, $2) again, in locked lanes. If a row's key is held, it returns to its old place, ahead of
 * all rows that wait there, with its next turn number. Otherwise it is appended at the end.
 *
 * A row that is not a valid message stays parked: `pending` would refuse it, and all other rows with it. Parameters
 * from $3 on are for the audit.
 */
export function retrySql(t: BoxTables): string {
  const isHeld = `coalesce((${rowWith("true", holdKey(t), ["c.box", "c.lane", "c.key"])}), false)`;
  return `
    WITH changed AS (
      DELETE FROM ${t.parked} p WHERE ${isItem(t, t.parked)} AND ${isMessage("p.")}
      RETURNING p.*
    ), back AS (
      INSERT INTO ${t.wait} (box, lane, position, ${columns}, created_at, attempts, last_error, failures, hold_key, turn)
      SELECT box, lane, position, ${columns}, created_at, 0, reason, failures, key, turn + 1 FROM changed c WHERE ${isHeld}
    ), anew AS (
      INSERT INTO ${t.pending} (box, lane, ${columns}, last_error, failures)
      SELECT box, lane, ${columns}, reason, failures FROM changed c WHERE NOT ${isHeld} AND ${numbered} ORDER BY position
    ), ${audited(t, "retry", 3)}
    ${answer}`;
}

/** Deletes the rows ($1, $2) of a status, in locked lanes. Parameters from $3 on are for the audit. */
export function discardSql(t: BoxTables, status: Exclude<Status, "done">): string {
  const table = { pending: t.pending, waiting: t.wait, scheduled: t.scheduled, parked: t.parked }[status];
  // Scheduled rows have positions of their own, which are unique across lanes.
  const scheduled = isAmong(items, { table, columns: ["(x.box + 0)", "x.position"] }, [`${t.box}`, "i.position"]);
  return `
    WITH changed AS (
      DELETE FROM ${table} m WHERE ${status === "scheduled" ? scheduled : isItem(t, table)}
      RETURNING m.id, m.position
    ), ${audited(t, "discard", 3)}
    ${answer}`;
}

/**
 * Call it after parked rows of the keys $2 have left the lanes $1, which are locked. A key that no parked row holds any
 * more becomes due. Changing `changes` tells a concurrent settle that the hold is not the one that it saw.
 */
export function freeKeysSql(t: BoxTables): string {
  const holding = { table: t.parked, columns: ["x.box", "x.lane", "x.key"], where: "holds" };
  return `
    UPDATE ${t.hold} h
    SET changes = changes + 1, due_at = CASE
          WHEN h.due_at = 'infinity' AND (${rowWith("true", holding, ["h.box", "h.lane", "h.key"])}) IS NULL THEN clock_timestamp()
          ELSE h.due_at END
    WHERE ${isAmong(holds, holdKey(t), [`${t.box}`, "i.lane", "i.key"])}`;
}

/**
 * Call it after waiting rows have left the holds ($1, $2) at the positions $3. If the first row left, the rows behind
 * it become due.
 */
export function advanceKeysSql(t: BoxTables): string {
  const firsts = `(SELECT lane, key, min(position) AS position
          FROM unnest($1::integer[], $2::text[], $3::bigint[]) AS k (lane, key, position) GROUP BY lane, key) AS i`;
  const isFirst = `coalesce((${rowWith("x.position", waitKey(t), [`${t.box}`, "i.lane", "i.key"])}) > i.position, true)`;
  return `
    UPDATE ${t.hold} h SET changes = changes + 1, due_at = least(due_at, clock_timestamp())
    WHERE ${isAmong(firsts, holdKey(t), [`${t.box}`, "i.lane", "i.key"], isFirst)} AND h.due_at <> 'infinity'`;
}

/**
 * Deletes those of the holds ($1, $2) that no row waits under, in locked lanes. A later settle creates them again if
 * needed.
 */
export function endHoldsSql(t: BoxTables): string {
  return `
    DELETE FROM ${t.hold} h
    WHERE ${isAmong(holds, holdKey(t), [`${t.box}`, "i.lane", "i.key"])} AND h.due_at <> 'infinity'
      AND (${rowWith("true", waitKey(t), ["h.box", "h.lane", "h.key"])}) IS NULL`;
}

/** Serializes replays with the same token $1. A later one waits for the earlier one and continues where it ended. */
export const takeTokenSql = "SELECT pg_advisory_xact_lock(hashtextextended('postbox replay ' || $1::text, 0::bigint))";
export function tokenReachSql(t: BoxTables): string {
  return `SELECT max(last_position) AS last FROM ${t.audit} WHERE confirm = $1::text AND box = ${t.name}`;
}

/**
 * Appends the rows of `done` that `picked` selects again, in their order. The last three parameters are for the audit.
 */
export function replaySql(t: BoxTables, picked: string, first: number): string {
  return `
    WITH changed AS MATERIALIZED (${picked}), anew AS (
      INSERT INTO ${t.pending} (box, lane, ${columns}, failures)
      SELECT ${t.box}, lane, ${columns}, failures FROM changed WHERE ${numbered} ORDER BY position
    ), ${audited(t, "replay", first)}
    SELECT count(*) AS count, max(position) AS last FROM changed`;
}

/** The columns that `replaySql` needs. */
export const replayed = `m.lane, m.position, ${ofAlias("m")}, m.failures`;

/** Pauses or resumes a box. $1 and $2 are actor and reason. If nothing changes, nothing is audited. */
export function pauseSql(t: BoxTables, action: "pause" | "resume"): string {
  const [pausedAt, was] = action === "pause" ? ["clock_timestamp()", "NULL"] : ["NULL", "NOT NULL"];
  return `
    WITH changed AS (
      UPDATE ${t.boxes} SET paused_at = ${pausedAt} WHERE number = ${t.box} AND paused_at IS ${was} RETURNING name
    )
    INSERT INTO ${t.audit} (box, action, actor, reason, count, ids)
    SELECT name, '${action}', $1::text, $2::text, 0, '{}' FROM changed`;
}

/** Makes the hold of key $2 due, in lane $1, which is locked. $3 and $4 are actor and reason. */
export function releaseKeySql(t: BoxTables): string {
  return `
    WITH due AS (
      UPDATE ${t.hold} SET due_at = least(due_at, clock_timestamp()), changes = changes + 1
      WHERE ctid = (${rowWith("x.ctid", holdKey(t), [`${t.box}`, "$1::integer", "$2::text"])}) AND left(key, 1) <> chr(1)
      RETURNING key
    ), audited AS (
      INSERT INTO ${t.audit} (box, action, actor, reason, selection, count, ids)
      SELECT ${t.name}, 'release', $3::text, $4::text, jsonb_build_object('key', key), 0, '{}' FROM due
    )
    SELECT count(*) AS count FROM due`;
}

/** The latest audit entries, of this box or of all. $1 is how many, $2 the entry that they are older than. */
export function auditSql(t: BoxTables, of: "this" | "all"): string {
  return `
    SELECT number, box, at, action, actor, reason, selection::text AS selection, count, to_json(ids)::text AS ids FROM ${t.audit}
    WHERE ${of === "all" ? "" : `box = ${t.name} AND `}number < $2::bigint ORDER BY number DESC LIMIT $1::integer`;
}
