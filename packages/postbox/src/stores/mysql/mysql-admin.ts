import { createHash } from "node:crypto";
import type { Admin, AuditEntry, BoxStats, MessageFilter, Status, StatusStats, StoredMessage } from "../../admin.js";
import { laneOf } from "../../internal/lane.js";
import type { CheckedChange, CheckedSelection } from "../admin-options.js";
import { consumerOf } from "../box-names.js";
import type { ChangedStep } from "../change-batches.js";
import { type BoundedStep, type BoxView, createAdmin, type PageOf, type Reach } from "../create-admin.js";
import { clockOf, failing, type MysqlAccess } from "./mysql-access.js";
import { ownersFrom, ownersSql } from "./mysql-box.js";
import { aloneMark, BoxTransaction, messageColumnsOfM, messageOf, type PlacedRow } from "./mysql-rows.js";
import { msOf, nowSql, storedTime, type Tables } from "./names.js";
import type { Session } from "./own-connections.js";

/** `Store.admin` in MySQL. Each read sees one snapshot, and each step of a change is one transaction. */
export function mysqlAdmin(access: MysqlAccess): Admin {
  const { t, runtime, database } = access;
  const doing = <R>(what: string, work: () => Promise<R>): Promise<R> => failing(`could not ${what}`, database, work);

  return createAdmin({
    runtime,
    boxes: () => doing("list the boxes", () => access.boxNames()),
    stats: (name, withDone) =>
      doing(`count the messages of ${name}`, async () => {
        const box = await access.used(name);
        return access.look((session) => statsOf(session, t, name, box, withDone));
      }),

    look: (name, work) =>
      doing(`look at the box ${name}`, async () => {
        const box = await access.used(name);
        return access.look((session) => work(viewOf(session, t, name, box)));
      }),

    audit: ({ box: name, limit, before }) =>
      doing("read the audit", async () => {
        const filter = name === undefined ? "" : `AND a.box = ${await access.used(name)}`;
        const index = name === undefined ? "PRIMARY" : "box_number";
        const { rows } = await access.read((session) =>
          session.run(
            `SELECT a.*, b.name AS box_name FROM ${t.audit} a FORCE INDEX (${index}) JOIN ${t.box} b ON b.number = a.box
             WHERE a.number < ? ${filter} ORDER BY a.number DESC LIMIT ?`,
            [before ?? Number.MAX_SAFE_INTEGER, limit],
          ),
        );
        return rows.map(entryFrom);
      }),

    reach: (selection, limit) =>
      doing(`select messages of ${selection.box}`, async () => {
        const box = await access.used(selection.box);
        return access.look((session) => reachOf(session, t, box, selection, limit));
      }),

    change: (change, step) =>
      doing(`change messages of ${change.box}`, async () => {
        const box = await access.used(change.box);
        return access.transact((session) => changeRows(session, t, box, change, step));
      }),

    setPaused: (paused, { box: name, ...operator }) =>
      doing(`pause or resume the box ${name}`, async () => {
        const box = await access.used(name);
        await access.transact(async (session) => {
          const { rows } = await session.run(`SELECT paused_at FROM ${t.box} WHERE number = ? FOR UPDATE`, [box]);
          if ((rows[0]?.paused_at !== null) === paused) return;
          await session.run(`UPDATE ${t.box} SET paused_at = ${paused ? nowSql : "NULL"} WHERE number = ?`, [box]);
          const change = new BoxTransaction(session, t, box, await clockOf(session));
          await change.audit({ action: paused ? "pause" : "resume", ...operator });
        });
      }),

    release: (key, { box: name, ...operator }) =>
      doing(`release a key of ${name}`, async () => {
        const box = await access.used(name);
        return access.transact(async (session) => {
          const lane = laneOf(key);
          await lockLanes(session, t, box, [lane]);
          const change = new BoxTransaction(session, t, box, await clockOf(session));
          if (!(await change.letGo(lane, key))) return false;
          await change.audit({ action: "release", ...operator, selection: { key } });
          return true;
        });
      }),
  });
}

function entryFrom(record: Readonly<Record<string, unknown>>): AuditEntry {
  const { number, at, box_name: box, action, actor: by, reason, selection, count, ids } = record;
  return {
    number: Number(number),
    at: new Date(msOf(at)),
    box: String(box),
    action: action as AuditEntry["action"],
    by: String(by),
    ...(reason !== null && { reason: String(reason) }),
    ...(selection !== null && { selection: JSON.parse(String(selection)) }),
    count: Number(count),
    ids: JSON.parse(String(ids)),
  };
}

/** Where the messages of a status are, and the columns that differ between the tables. */
interface Source {
  readonly table: string;
  /** The index that serves a page. */
  readonly byPosition: string;
  readonly position: string;
  readonly columns: string;
  /** Since when it has this status. */
  readonly updatedAt: string;
}

const none = "NULL AS hold, NULL AS due_at, NULL AS schedule_key";

function sourceOf(t: Tables, box: string, status: Status): Source {
  const common = { byPosition: "by_position", position: "m.position", updatedAt: "m.updated_at" };
  const attempts = "m.lane, m.attempts, m.last_error, m.failures";
  switch (status) {
    case "pending":
      return { ...common, table: t.pending, columns: `${attempts}, ${none}`, updatedAt: "m.created_at" };
    case "waiting": {
      const due = `(SELECT h.due_at FROM ${t.hold} h WHERE h.box = m.box AND h.lane = m.lane AND h.name = m.hold)`;
      return {
        ...common,
        table: t.waiting,
        columns: `${attempts}, m.hold, ${due} AS due_at, NULL AS schedule_key`,
      };
    }
    case "scheduled":
      return {
        ...common,
        table: t.scheduled,
        byPosition: "box_position",
        columns: "m.lane, 0 AS attempts, NULL AS last_error, NULL AS failures, NULL AS hold, m.due_at, m.schedule_key",
        updatedAt: "m.created_at",
      };
    case "parked":
      return { ...common, table: t.parked, columns: `${attempts}, ${none}` };
    case "done":
      if (consumerOf(box) === undefined) return { ...common, table: t.done, columns: `${attempts}, ${none}` };
      return {
        table: t.handled,
        byPosition: "box_number",
        position: "m.number",
        columns: `0 AS lane, 1 AS attempts, NULL AS last_error, NULL AS failures, ${none}`,
        updatedAt: "m.handled_at",
      };
  }
}

/** A condition on the rows of a source, its index, and its parameters. */
interface Condition {
  readonly index: string;
  readonly sql: string;
  readonly params: readonly unknown[];
}

function conditionOf(source: Source, box: number, { ids, ...filter }: MessageFilter): Condition {
  const parts = [`m.box = ${box}`];
  const params: unknown[] = [];
  const add = (sql: string, value: unknown) => {
    if (value === undefined) return;
    parts.push(sql);
    params.push(value);
  };
  if (ids !== undefined && ids.length === 0) parts.push("FALSE");
  else add("m.id IN (?)", ids);
  add("m.type = ?", filter.type);
  add("m.topic = ?", filter.topic);
  add("m.`key` = ?", filter.key);
  add("m.source = ?", filter.source);
  add(
    "CAST(JSON_UNQUOTE(JSON_EXTRACT(m.extensions, '$.correlationid')) AS BINARY) = ?",
    filter.correlationId && Buffer.from(filter.correlationId),
  );
  add("m.created_at >= ?", filter.createdFrom && storedTime(filter.createdFrom.getTime()));
  add("m.created_at < ?", filter.createdBefore && storedTime(filter.createdBefore.getTime()));
  const hasAttempts = source.columns.includes("m.attempts");
  const attempts = hasAttempts ? "m.attempts" : source.columns.includes("1 AS attempts") ? "1" : "0";
  add(`${attempts} >= ?`, filter.minAttempts);
  const error = hasAttempts ? "m.last_error" : "NULL";
  add(`LOCATE(?, CAST(${error} AS BINARY)) > 0`, filter.error && Buffer.from(filter.error));
  if (source.updatedAt === "m.handled_at") parts.push("m.handled_at IS NOT NULL");
  return { index: ids === undefined ? source.byPosition : "id", sql: parts.join(" AND "), params };
}

const summaryOf = ({ position, columns, updatedAt }: Source) =>
  `${position} AS position, m.id, m.type, m.topic, m.source, m.\`key\`, LENGTH(m.data) AS size, m.created_at,
   ${updatedAt} AS changed_at, ${columns}`;

function viewOf(session: Session, t: Tables, name: string, box: number): BoxView {
  return {
    async page({ status, filter, before = Number.MAX_SAFE_INTEGER, limit }: PageOf) {
      const source = sourceOf(t, name, status);
      const condition = conditionOf(source, box, filter);
      const { rows } = await session.run(
        `SELECT ${summaryOf(source)} FROM ${source.table} m FORCE INDEX (${condition.index})
         WHERE ${condition.sql} AND ${source.position} < ? ORDER BY ${source.position} DESC LIMIT ?`,
        [...condition.params, before, limit],
      );
      return rows.map((row) => shown(status, row));
    },

    async details(status, id) {
      const source = sourceOf(t, name, status);
      const condition = conditionOf(source, box, { ids: [id] });
      const { rows } = await session.run(
        `SELECT ${summaryOf(source)}, ${messageColumnsOfM} FROM ${source.table} m FORCE INDEX (${condition.index})
         WHERE ${condition.sql} ORDER BY ${source.position} DESC LIMIT 1000`,
        condition.params,
      );
      return rows.map((row) => {
        const failures: { attempt: number; at: number; error: string }[] = JSON.parse(String(row.failures ?? "[]"));
        return {
          ...shown(status, row),
          message: scheduledMessage(status, row),
          failures: failures.map(({ attempt, at, error }) => ({ attempt, at: new Date(at), error })),
        };
      });
    },
  };
}

function scheduledMessage(status: Status, row: Readonly<Record<string, unknown>>) {
  const { message } = messageOf(row);
  if (status !== "scheduled" || row.due_at === null) return message;
  const deliverAt = new Date(msOf(row.due_at)).toISOString();
  const { schedule_key: scheduleKey } = row;
  return Object.freeze({ ...message, deliverAt, ...(scheduleKey !== null && { scheduleKey: String(scheduleKey) }) });
}

function shown(status: Status, row: Readonly<Record<string, unknown>>): StoredMessage {
  const { key, last_error: lastError, schedule_key: scheduleKey, due_at: due } = row;
  const updatedAt = new Date(msOf(row.changed_at));
  return {
    status,
    position: Number(row.position),
    lane: Number(row.lane),
    id: String(row.id),
    type: String(row.type),
    topic: String(row.topic),
    source: String(row.source),
    ...(key !== null && { key: String(key) }),
    bytes: Number(row.size),
    attempts: Number(row.attempts),
    ...(lastError !== null && { lastError: String(lastError) }),
    createdAt: new Date(msOf(row.created_at)),
    updatedAt,
    ...(due !== null && { dueAt: new Date(msOf(due)) }),
    ...(scheduleKey !== null && { scheduleKey: String(scheduleKey) }),
    ...(status === "done" && { publishedAt: updatedAt }),
  };
}

/** A replay takes each message once, however often it was replayed before: its first row. */
function onceSql(t: Tables, { action }: CheckedSelection): string {
  if (action !== "replay") return "";
  return `AND NOT EXISTS (SELECT 1 FROM ${t.done} earlier FORCE INDEX (id)
    WHERE earlier.box = m.box AND earlier.id = m.id AND earlier.position < m.position)`;
}

async function reachOf(
  session: Session,
  t: Tables,
  box: number,
  selection: CheckedSelection,
  limit: number,
): Promise<Reach> {
  const source = sourceOf(t, selection.box, selection.status);
  const condition = conditionOf(source, box, selection.filter);
  const { rows } = await session.run(
    `SELECT COUNT(*) AS count, MAX(CASE WHEN place <= ? THEN position END) AS last, ${nowSql} AS until FROM (
       SELECT position, ROW_NUMBER() OVER (ORDER BY position) AS place FROM (
         SELECT ${source.position} AS position FROM ${source.table} m FORCE INDEX (${condition.index})
         WHERE ${condition.sql} ${onceSql(t, selection)} ORDER BY ${source.position} LIMIT ?) found) placed`,
    [limit, ...condition.params, limit + 1],
  );
  const [found] = rows;
  return { count: Number(found?.count), upTo: Number(found?.last ?? 0), until: Number(found?.until) };
}

async function lockLanes(session: Session, t: Tables, box: number, lanes: readonly number[]): Promise<void> {
  if (lanes.length === 0) return;
  await session.run(
    `SELECT epoch FROM ${t.lane} FORCE INDEX (PRIMARY) WHERE box = ? AND lane IN (?) ORDER BY lane FOR UPDATE`,
    [box, lanes],
  );
}

/**
 * Changes the first rows of a selection. Their lanes are locked before the rows are read for good, since a relay may
 * settle them meanwhile.
 */
async function changeRows(
  session: Session,
  t: Tables,
  box: number,
  change: CheckedChange,
  step: BoundedStep,
): Promise<ChangedStep> {
  const { action, selection, by, reason, confirm, status, filter } = change;
  const token = confirm === undefined ? undefined : createHash("sha256").update(confirm).digest("hex");
  const reached = action === "replay" && token !== undefined ? await reachedBy(session, t, token) : 0;
  const source = sourceOf(t, change.box, status);
  const condition = conditionOf(source, box, filter);
  const from = Math.max(step.after, reached);
  const sql = (lock: string) =>
    `SELECT m.lane, m.position, m.id FROM ${source.table} m FORCE INDEX (${condition.index})
     WHERE ${condition.sql} AND m.position > ? AND m.position <= ? AND ${source.updatedAt} <= ? ${onceSql(t, change)}
     ORDER BY m.position LIMIT ? ${lock}`;
  const params = [...condition.params, from, step.upTo, step.until, step.limit];
  const seen = await session.run(sql(""), params);
  const lanes = [...new Set(seen.rows.map(({ lane }) => Number(lane)))].sort((one, other) => one - other);
  // A scheduled or sent row is in no lane that is owned.
  const isInLane = status !== "scheduled" && status !== "done";
  if (isInLane) await lockLanes(session, t, box, lanes);
  const last = Number(seen.rows.at(-1)?.position ?? step.after);
  const rows = isInLane
    ? (await session.run(sql(""), params)).rows.filter((row) => lanes.includes(Number(row.lane)))
    : (await session.run(sql("FOR UPDATE"), params)).rows;
  const taken = rows.filter(({ position }) => Number(position) <= last);
  const ids = taken.map(({ id }) => String(id));
  const places = taken.map((row) => ({ lane: Number(row.lane), position: Number(row.position) }));
  const target = new BoxTransaction(session, t, box, await clockOf(session));
  await applyChange(target, change, places);
  const entry = { action, by, ...(reason !== undefined && { reason }), selection, ids, confirm: token, reached: last };
  if (ids.length > 0) await target.audit(entry);
  return { found: seen.rows.length, count: ids.length, last };
}

async function applyChange(
  box: BoxTransaction,
  { action, status }: CheckedChange,
  places: readonly { readonly lane: number; readonly position: number }[],
): Promise<void> {
  const { session, t } = box;
  if (places.length === 0) return;
  const positions = places.map(({ position }) => position);
  if (action === "replay") {
    await box.register();
    return box.appendAgain("done", positions);
  }
  if (status === "scheduled") {
    await session.run(
      `DELETE FROM ${t.scheduled} USING ${t.scheduled} FORCE INDEX (box_position) WHERE box = ? AND position IN (?)`,
      [box.box, positions],
    );
    return;
  }
  if (action === "retry" && status === "pending") {
    // Another owner takes the lane, and reads its rows anew.
    await session.run(
      `UPDATE ${t.lane} FORCE INDEX (PRIMARY) SET epoch = epoch + 1, owner = NULL, clean = TRUE
       WHERE box = ? AND lane IN (?)`,
      [box.box, [...new Set(places.map(({ lane }) => lane))]],
    );
    return;
  }
  const rows = await box.rowsAt(status as "pending" | "waiting" | "parked", places);
  rows.sort((one, other) => one.position - other.position);
  if (action === "retry" && status === "parked") await box.register();
  const apply = (row: PlacedRow) => {
    if (action === "discard") return box.discard(row);
    return status === "parked" ? box.retryParked(row) : box.retryWaiting(row);
  };
  for (const row of rows) await apply(row);
}

async function reachedBy(session: Session, t: Tables, token: string): Promise<number> {
  const { rows } = await session.run(
    `SELECT MAX(reached) AS reached FROM ${t.audit} FORCE INDEX (confirm) WHERE confirm = ?`,
    [token],
  );
  return Number(rows[0]?.reached ?? 0);
}

async function statsOf(session: Session, t: Tables, name: string, box: number, withDone: boolean): Promise<BoxStats> {
  const now = await clockOf(session);
  const figures = async (status: Status, since?: string): Promise<StatusStats> => {
    const source = sourceOf(t, name, status);
    const condition = conditionOf(source, box, {});
    const { rows } = await session.run(
      `SELECT COUNT(*) AS count, MIN(${since ?? source.updatedAt}) AS oldest
       FROM ${source.table} m FORCE INDEX (${condition.index}) WHERE ${condition.sql}`,
    );
    const count = Number(rows[0]?.count);
    return count === 0 ? { count } : { count, oldestAgeMs: Math.max(0, now - msOf(rows[0]?.oldest)) };
  };
  const statuses = ["pending", "waiting", "scheduled", "parked"] as const;
  const each = statuses.map((status) => {
    const source = sourceOf(t, name, status);
    const since = status === "pending" || status === "waiting" ? "m.created_at" : "NULL";
    return `SELECT m.topic, '${status}' AS status, COUNT(*) AS count, MIN(${since}) AS oldest
      FROM ${source.table} m FORCE INDEX (${source.byPosition}) WHERE m.box = ${box} GROUP BY m.topic`;
  });
  const topics = await session.run(each.join(" UNION ALL "));
  const held = await session.run(
    `SELECT COUNT(*) AS count, COUNT(CASE WHEN due_at IS NULL THEN 1 END) AS good
     FROM ${t.hold} FORCE INDEX (box_due) WHERE box = ? AND LEFT(name, 1) <> ?`,
    [box, Buffer.from(aloneMark)],
  );
  const [state, members, lanes] = await session.runAll([
    [`SELECT paused_at FROM ${t.box} WHERE number = ?`, [box]],
    ...ownersSql(t, box),
  ]);
  return {
    pending: await figures("pending"),
    waiting: await figures("waiting", "m.created_at"),
    scheduled: await figures("scheduled", "m.due_at"),
    parked: await figures("parked"),
    ...(withDone && { done: await figures("done") }),
    topics: topicsFrom(topics.rows, now),
    heldKeys: { count: Number(held.rows[0]?.count), forGood: Number(held.rows[0]?.good) },
    paused: state?.rows[0]?.paused_at != null,
    lanes: ownersFrom(members, lanes).sharing(),
  };
}

function topicsFrom(rows: readonly Readonly<Record<string, unknown>>[], now: number): BoxStats["topics"] {
  const byTopic = new Map<string, { counts: Record<string, number>; oldest: number }>();
  for (const { topic, status, count, oldest } of rows) {
    const known = byTopic.get(String(topic)) ?? { counts: {}, oldest: Number.POSITIVE_INFINITY };
    known.counts[String(status)] = Number(count);
    if (oldest !== null) known.oldest = Math.min(known.oldest, msOf(oldest));
    byTopic.set(String(topic), known);
  }
  return [...byTopic]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([topic, { counts, oldest }]) => ({
      topic,
      pending: counts.pending ?? 0,
      waiting: counts.waiting ?? 0,
      scheduled: counts.scheduled ?? 0,
      parked: counts.parked ?? 0,
      ...(Number.isFinite(oldest) && { oldestAgeMs: Math.max(0, now - oldest) }),
    }));
}
