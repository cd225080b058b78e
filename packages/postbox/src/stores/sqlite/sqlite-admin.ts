import type { Admin, AuditEntry, BoxStats, MessageFilter, Status, StatusStats, StoredMessage } from "../../admin.js";
import { laneOf } from "../../internal/lane.js";
import type { CheckedChange, CheckedSelection } from "../admin-options.js";
import { consumerOf } from "../box-names.js";
import type { ChangedStep } from "../change-batches.js";
import { type BoundedStep, type BoxView, createAdmin, type PageOf, type Reach } from "../create-admin.js";
import type { MessageRecord } from "../message-record.js";
import type { SqliteAccess } from "./sqlite-access.js";
import { bytesIn, type Connection, type SqliteValue } from "./sqlite-database.js";
import { aloneMark, type BoxTransaction, messageColumns, messageOf, ownersOf } from "./sqlite-rows.js";

/** `Store.admin` in SQLite. Each read sees one commit, and each step of a change is one transaction. */
export function sqliteAdmin(access: SqliteAccess): Admin {
  const { reader, runtime } = access;
  const read = async <R>(look: () => R): Promise<R> => access.read(look);

  return createAdmin({
    runtime,
    boxes: () => read(() => access.boxNames()),
    stats: (box, withDone) => read(() => statsOf(access, box, withDone)),

    async look(box, work) {
      const number = await read(() => access.usedBox(box));
      return access.look((connection) => work(viewOf(connection, box, number)));
    },

    audit: ({ box, limit, before }) =>
      read(() => {
        const filter = box === undefined ? "" : "AND box = ?";
        const index = box === undefined ? "" : "INDEXED BY postbox_audit_box";
        const sql = `SELECT a.*, (SELECT name FROM postbox_box b WHERE b.number = a.box) AS box_name
          FROM postbox_audit a ${index} WHERE number < ? ${filter} ORDER BY number DESC LIMIT ?`;
        const boxes = box === undefined ? [] : [access.usedBox(box)];
        return reader.all<AuditRecord>(sql, before ?? Number.MAX_SAFE_INTEGER, ...boxes, limit).map(entryFrom);
      }),

    reach: (selection, limit) => read(() => reachOf(access, selection, limit)),

    async change(change, step) {
      await read(() => access.usedBox(change.box));
      return access.write(change.box, (box) => changeRows(box, change, step));
    },

    async setPaused(paused, { box: name, ...operator }) {
      await read(() => access.usedBox(name));
      await access.write(name, (box) => {
        if ((access.pausedAt(box.box) !== undefined) === paused) return;
        const sql = "UPDATE postbox_box SET paused_at = ? WHERE number = ?";
        box.connection.run(sql, paused ? box.now : null, box.box);
        box.audit({ action: paused ? "pause" : "resume", ...operator });
      });
    },

    async release(key, { box: name, ...operator }) {
      await read(() => access.usedBox(name));
      return access.write(name, (box) => {
        const sql = "SELECT lane FROM postbox_hold WHERE box = ? AND lane = ? AND name = ?";
        const lane = laneOf(key);
        if (box.connection.first(sql, box.box, lane, key) === undefined) return false;
        box.letGo(lane, key);
        box.audit({ action: "release", ...operator, selection: { key } });
        return true;
      });
    },
  });
}

interface AuditRecord {
  readonly number: number;
  readonly at: number;
  readonly box_name: string;
  readonly action: string;
  readonly actor: string;
  readonly reason: string | null;
  readonly selection: string | null;
  readonly count: number;
  readonly ids: string;
}

function entryFrom(record: AuditRecord): AuditEntry {
  const { number, at, box_name: box, action, actor: by, reason, selection, count, ids } = record;
  return {
    number: Number(number),
    at: new Date(Number(at)),
    box,
    action: action as AuditEntry["action"],
    by,
    ...(reason !== null && { reason }),
    ...(selection !== null && { selection: JSON.parse(selection) }),
    count: Number(count),
    ids: JSON.parse(ids),
  };
}

/** A condition on the rows of a box, and its parameters. */
interface Condition {
  readonly index: string;
  readonly sql: string;
  readonly params: readonly SqliteValue[];
}

function conditionOf(status: Status, { ids, ...filter }: MessageFilter): Condition {
  const parts = ["box = ?", "status = ?"];
  const params: SqliteValue[] = [];
  const equal = (column: string, value: string | undefined) => {
    if (value === undefined) return;
    parts.push(`${column} = ?`);
    params.push(value);
  };
  if (ids !== undefined) {
    parts.push("id IN (SELECT value FROM json_each(?))");
    params.push(JSON.stringify(ids));
  }
  equal("type", filter.type);
  equal("topic", filter.topic);
  equal("key", filter.key);
  equal("source", filter.source);
  equal("correlation_id", filter.correlationId);
  if (filter.createdFrom !== undefined) {
    parts.push("created_at >= ?");
    params.push(filter.createdFrom.getTime());
  }
  if (filter.createdBefore !== undefined) {
    parts.push("created_at < ?");
    params.push(filter.createdBefore.getTime());
  }
  if (filter.minAttempts !== undefined) {
    parts.push("attempts >= ?");
    params.push(filter.minAttempts);
  }
  if (filter.error !== undefined) {
    parts.push("instr(last_error, ?) > 0");
    params.push(filter.error);
  }
  const index = ids === undefined ? "postbox_status" : "postbox_id";
  return { index, sql: parts.join(" AND "), params: [status, ...params] };
}

/** What a consumer has handled, with the columns that `postbox_message` has. */
const handledRows = `(SELECT number AS position, box, 'done' AS status, 0 AS lane, ${messageColumns}, correlation_id,
  1 AS attempts, NULL AS last_error, NULL AS due_at, NULL AS schedule_key, '[]' AS failures, received_at AS created_at,
  handled_at AS updated_at, 0 AS revision, NULL AS hold FROM postbox_handled
  WHERE handled_at IS NOT NULL)`;

function tableOf(box: string, status: Status, { index }: Condition): string {
  const isHandled = status === "done" && consumerOf(box) !== undefined;
  return isHandled ? `${handledRows} m` : `postbox_message m INDEXED BY ${index}`;
}

/** A waiting row is due when its hold is. */
const dueAt = `CASE status WHEN 'waiting'
  THEN (SELECT h.due_at FROM postbox_hold h WHERE h.box = m.box AND h.lane = m.lane AND h.name = m.hold)
  ELSE due_at END AS due`;
const summary = `position, status, lane, id, type, topic, source, key, length(data) AS bytes, attempts, last_error,
  schedule_key, created_at, updated_at, ${dueAt}`;

interface SummaryRecord {
  readonly position: number;
  readonly status: Status;
  readonly lane: number;
  readonly id: string;
  readonly type: string;
  readonly topic: string;
  readonly source: string;
  readonly key: string | null;
  readonly bytes: number;
  readonly attempts: number;
  readonly last_error: string | null;
  readonly schedule_key: string | null;
  readonly created_at: number;
  readonly updated_at: number;
  readonly due: number | null;
}

function viewOf(connection: Connection, box: string, number: number): BoxView {
  return {
    async page({ status, filter, before = Number.MAX_SAFE_INTEGER, limit }: PageOf) {
      const condition = conditionOf(status, filter);
      const sql = `SELECT ${summary} FROM ${tableOf(box, status, condition)}
        WHERE ${condition.sql} AND position < ? ORDER BY position DESC LIMIT ?`;
      return connection.all<SummaryRecord>(sql, number, ...condition.params, before, limit).map(shown);
    },

    async details(status, id) {
      const condition = conditionOf(status, { ids: [id] });
      const sql = `SELECT ${summary}, ${messageColumns}, failures FROM ${tableOf(box, status, condition)}
        WHERE ${condition.sql} ORDER BY position DESC LIMIT 1000`;
      type Details = SummaryRecord & MessageRecord & { readonly failures: string };
      return connection.all<Details>(sql, number, ...condition.params).map((record) => {
        const failures: { attempt: number; at: number; error: string }[] = JSON.parse(record.failures);
        return {
          ...shown(record),
          message: scheduledMessage(record),
          failures: failures.map(({ attempt, at, error }) => ({ attempt, at: new Date(at), error })),
        };
      });
    },
  };
}

function scheduledMessage(record: SummaryRecord & MessageRecord) {
  const { message } = messageOf({ ...record, data: bytesIn(record.data) });
  if (record.status !== "scheduled" || record.due === null) return message;
  const deliverAt = new Date(Number(record.due)).toISOString();
  const { schedule_key: scheduleKey } = record;
  return Object.freeze({ ...message, deliverAt, ...(scheduleKey !== null && { scheduleKey }) });
}

function shown(record: SummaryRecord): StoredMessage {
  const { key, last_error: lastError, schedule_key: scheduleKey, due, status } = record;
  const updatedAt = new Date(Number(record.updated_at));
  return {
    status,
    position: Number(record.position),
    lane: Number(record.lane),
    id: record.id,
    type: record.type,
    topic: record.topic,
    source: record.source,
    ...(key !== null && { key }),
    bytes: Number(record.bytes),
    attempts: Number(record.attempts),
    ...(lastError !== null && { lastError }),
    createdAt: new Date(Number(record.created_at)),
    updatedAt,
    ...(due !== null && (status === "waiting" || status === "scheduled") && { dueAt: new Date(Number(due)) }),
    ...(scheduleKey !== null && status === "scheduled" && { scheduleKey }),
    ...(status === "done" && { publishedAt: updatedAt }),
  };
}

/** A replay takes each message once, however often it was replayed before: its first row. */
function onceSql({ action }: CheckedSelection): string {
  if (action !== "replay") return "";
  return `AND NOT EXISTS (SELECT 1 FROM postbox_message earlier INDEXED BY postbox_id
    WHERE earlier.box = m.box AND earlier.id = m.id AND earlier.status = 'done' AND earlier.position < m.position)`;
}

function reachOf(access: SqliteAccess, selection: CheckedSelection, limit: number): Reach {
  const { box, status, filter } = selection;
  const condition = conditionOf(status, filter);
  const number = access.usedBox(box);
  const sql = `SELECT count(*) AS count, max(CASE WHEN place <= ? THEN position END) AS last FROM (
    SELECT position, row_number() OVER (ORDER BY position) AS place FROM (
      SELECT position FROM ${tableOf(box, status, condition)} WHERE ${condition.sql} ${onceSql(selection)}
      ORDER BY position LIMIT ?))`;
  const found = access.reader.first<{ readonly count: number; readonly last: number | null }>(
    sql,
    limit,
    number,
    ...condition.params,
    limit + 1,
  );
  const revision = access.reader.first<{ readonly revision: number }>(
    "SELECT revision FROM postbox_box WHERE number = ?",
    number,
  );
  return { count: Number(found?.count), upTo: Number(found?.last ?? 0), until: Number(revision?.revision) };
}

function changeRows(box: BoxTransaction, change: CheckedChange, step: BoundedStep): ChangedStep {
  const { action, selection, by, reason, confirm, status, filter } = change;
  const reached = action === "replay" && confirm !== undefined ? reachedBy(box, confirm) : 0;
  const condition = conditionOf(status, filter);
  const sql = `SELECT position FROM postbox_message m INDEXED BY ${condition.index}
    WHERE ${condition.sql} AND position > ? AND position <= ? AND revision <= ? ${onceSql(change)}
    ORDER BY position LIMIT ?`;
  const from = Math.max(step.after, reached);
  const bounds = [from, step.upTo, step.until, step.limit];
  const positions = box.connection.all<{ readonly position: number }>(sql, box.box, ...condition.params, ...bounds);
  const ids: string[] = [];
  for (const { position } of positions) {
    const row = box.at(Number(position));
    if (row === undefined) continue;
    ids.push(row.message.id);
    if (action === "replay") box.appendAgain(row.position);
    else if (action === "retry") box.retry(row);
    else box.remove(row);
  }
  const last = Number(positions.at(-1)?.position ?? step.after);
  const entry = { action, by, ...(reason !== undefined && { reason }), selection, ids, confirm, reached: last };
  if (ids.length > 0) box.audit(entry);
  return { found: ids.length, count: ids.length, last };
}

function reachedBy(box: BoxTransaction, confirm: string): number {
  const sql = "SELECT max(reached) AS reached FROM postbox_audit INDEXED BY postbox_audit_confirm WHERE confirm = ?";
  return Number(box.connection.first<{ readonly reached: number | null }>(sql, confirm)?.reached ?? 0);
}

function statsOf(access: SqliteAccess, name: string, withDone: boolean): BoxStats {
  const { reader } = access;
  const [box, now] = [access.usedBox(name), access.now()];
  const figures = (status: Status, since: string): StatusStats => {
    const isHandled = status === "done" && consumerOf(name) !== undefined;
    const from = isHandled ? `${handledRows} m` : "postbox_message m INDEXED BY postbox_status";
    const sql = `SELECT count(*) AS count, min(${since}) AS oldest FROM ${from} WHERE box = ? AND status = ?`;
    const found = reader.first<{ readonly count: number; readonly oldest: number | null }>(sql, box, status);
    const count = Number(found?.count);
    return count === 0 ? { count } : { count, oldestAgeMs: Math.max(0, now - Number(found?.oldest ?? now)) };
  };
  const topics = reader.all<TopicRecord>(
    `SELECT topic, count(*) FILTER (WHERE status = 'pending') AS pending,
       count(*) FILTER (WHERE status = 'waiting') AS waiting, count(*) FILTER (WHERE status = 'scheduled') AS scheduled,
       count(*) FILTER (WHERE status = 'parked') AS parked,
       min(created_at) FILTER (WHERE status IN ('pending', 'waiting')) AS oldest
     FROM postbox_message INDEXED BY postbox_status
     WHERE box = ? AND status IN ('pending', 'waiting', 'scheduled', 'parked') GROUP BY topic ORDER BY topic`,
    box,
  );
  const held = reader.first<{ readonly count: number; readonly good: number }>(
    `SELECT count(*) AS count, count(*) FILTER (WHERE due_at IS NULL) AS good
     FROM postbox_hold INDEXED BY postbox_box_hold_due WHERE box = ? AND substr(name, 1, 1) <> ?`,
    box,
    aloneMark,
  );
  return {
    pending: figures("pending", "created_at"),
    waiting: figures("waiting", "created_at"),
    scheduled: figures("scheduled", "due_at"),
    parked: figures("parked", "updated_at"),
    ...(withDone && { done: figures("done", "updated_at") }),
    topics: topics.map(({ topic, oldest, ...counts }) => ({
      topic,
      pending: Number(counts.pending),
      waiting: Number(counts.waiting),
      scheduled: Number(counts.scheduled),
      parked: Number(counts.parked),
      ...(oldest !== null && { oldestAgeMs: Math.max(0, now - Number(oldest)) }),
    })),
    heldKeys: { count: Number(held?.count), forGood: Number(held?.good) },
    paused: access.pausedAt(box) !== undefined,
    lanes: ownersOf(reader, box, now).sharing(),
  };
}

interface TopicRecord {
  readonly topic: string;
  readonly pending: number;
  readonly waiting: number;
  readonly scheduled: number;
  readonly parked: number;
  readonly oldest: number | null;
}
