import type {
  Admin,
  BoxStats,
  Changed,
  MessageFilter,
  Operator,
  Status,
  StatusStats,
  StoredMessage,
  StoredMessageDetails,
} from "../../admin.js";
import {
  type CheckedChange,
  type CheckedSelection,
  checkAudit,
  checkChange,
  checkDryRun,
  checkGet,
  checkList,
  checkOperator,
  checkRelease,
  checkStats,
  statuses,
} from "../admin-options.js";
import { changeInBatches } from "../change-batches.js";
import { writeConfirmToken } from "../confirm-token.js";
import { writePageCursor } from "../page-cursor.js";
import type { MemoryBox, StatusRow } from "./memory-box.js";
import type { MemoryData } from "./memory-database.js";
import { copyOf } from "./memory-lane.js";

/**
 * The operator's side of a database in memory. Whatever happens between two awaits is one step to everybody else: so is each
 * look, and each batch of a change with its entry in the audit.
 */
export function memoryAdmin(data: MemoryData): Admin {
  const change = (checked: CheckedChange, apply: (box: MemoryBox, row: StatusRow) => void) =>
    changeRows(data, checked, apply);

  return {
    async stats(options) {
      const { box, done } = checkStats(options);
      return statsOf(data.existingBox(box), done);
    },

    async list(options) {
      const { box: name, filter, statuses: listed, limit, after } = checkList(options);
      const box = data.existingBox(name);
      const from = after === undefined ? 0 : listed.indexOf(after.status);
      const found = listed.slice(from).flatMap((status) =>
        box
          .rows(status)
          .filter((row) => (status !== after?.status || row.position < after.position) && fits(row, filter))
          .reverse(),
      );
      const messages = found.slice(0, limit).map(shown);
      const last = messages.at(-1);
      return last === undefined || found.length <= limit ? { messages } : { messages, next: writePageCursor(last) };
    },

    async get(givenId, options) {
      const { id, box } = checkGet(givenId, options);
      const found = data.existingBox(box);
      return statuses.flatMap((status) =>
        found
          .rows(status)
          .filter((row) => row.message.id === id)
          .reverse()
          .map(detailed),
      );
    },

    boxes: async () => data.boxNames(),

    async audit(options) {
      const { box, limit, before } = checkAudit(options);
      if (box !== undefined) data.existingBox(box);
      return data.audit.read(box, limit, before);
    },

    async dryRun(action, selection, options) {
      const checked = checkDryRun(action, selection, options);
      const fitting = selected(data.existingBox(checked.box), checked);
      const counted = fitting.slice(0, checked.limit);
      const until = data.rememberDryRun(counted.map(({ position }) => position));
      const bounds = { most: counted.length, upTo: counted.at(-1)?.position ?? 0, until };
      const more = fitting.length > counted.length;
      return { count: counted.length, more, confirm: writeConfirmToken(checked, bounds) };
    },

    retry: async (selection, options) => change(checkChange("retry", selection, options), (box, row) => box.retry(row)),
    discard: async (selection, options) =>
      change(checkChange("discard", selection, options), (box, row) => box.remove(row)),
    replay: async (selection, options) =>
      change({ perSecond: 1000, ...checkChange("replay", selection, options) }, (box, row) => box.appendAgain(row)),

    async pause(options) {
      setPaused(data, true, checkOperator("pause", options));
    },
    async resume(options) {
      setPaused(data, false, checkOperator("resume", options));
    },

    async release(givenKey, options) {
      const { key, box: name, ...operator } = checkRelease(givenKey, options);
      const box = data.existingBox(name);
      const released = box.letGo(key);
      const entry = { action: "release", ...operator, selection: { key }, count: 0, ids: [] } as const;
      if (released) data.audit.write(name, box.now, entry);
      return released;
    },
  };
}

function setPaused(data: MemoryData, paused: boolean, { box: name, ...operator }: Operator & { readonly box: string }) {
  const box = data.existingBox(name);
  if (box.paused === paused) return;
  box.pausedAt = paused ? box.now : undefined;
  data.audit.write(name, box.now, { action: paused ? "pause" : "resume", ...operator, count: 0, ids: [] });
}

async function changeRows(
  data: MemoryData,
  change: CheckedChange,
  apply: (box: MemoryBox, row: StatusRow) => void,
): Promise<Changed> {
  const { action, status, selection, by, reason } = change;
  const box = data.existingBox(change.box);
  // What a change by ids brings back, and what comes back by itself meanwhile, lies beyond this.
  const last = box.rows(status).at(-1)?.position ?? 0;
  const bounds = { ...change.bounds, upTo: Math.min(change.bounds.upTo, last) };
  const counted = data.dryRun(bounds.until);
  return changeInBatches({ ...change, bounds }, data.runtime, async ({ after, upTo, limit }) => {
    const done = action === "replay" ? data.audit.lastOf(change.confirm) : 0;
    const rows = selected(box, change)
      .filter(({ position }) => position > Math.max(after, done) && position <= upTo)
      .filter(({ position }) => counted?.has(position) ?? true)
      .slice(0, limit);
    for (const row of rows) apply(box, row);
    const ids = rows.map(({ message }) => message.id);
    const who = reason === undefined ? { by } : { by, reason };
    const last = rows.at(-1)?.position ?? after;
    const entry = { action, ...who, selection, count: ids.length, ids };
    if (ids.length > 0) data.audit.write(change.box, box.now, entry, change.confirm, last);
    return { found: ids.length, count: ids.length, last };
  });
}

/** A replay takes each message once, however often it was replayed before. */
function selected(box: MemoryBox, { action, status, filter }: CheckedSelection): StatusRow[] {
  const ids = new Set<string>();
  const isFirst = ({ message: { id } }: StatusRow) => !ids.has(id) && ids.add(id) !== undefined;
  return box.rows(status).filter((row) => (action !== "replay" || isFirst(row)) && fits(row, filter));
}

function fits({ message, attempts, error, createdAt }: StatusRow, filter: MessageFilter): boolean {
  const { ids, createdFrom, createdBefore, minAttempts = 0 } = filter;
  const equal = (asked: string | undefined, found: unknown) => asked === undefined || asked === found;
  return (
    (ids === undefined || ids.includes(message.id)) &&
    equal(filter.type, message.type) &&
    equal(filter.topic, message.topic) &&
    equal(filter.key, message.key) &&
    equal(filter.source, message.source) &&
    equal(filter.correlationId, message.extensions.correlationid) &&
    (createdFrom === undefined || createdAt >= createdFrom.getTime()) &&
    (createdBefore === undefined || createdAt < createdBefore.getTime()) &&
    attempts >= minAttempts &&
    (filter.error === undefined || (error?.includes(filter.error) ?? false))
  );
}

function statsOf(box: MemoryBox, withDone: boolean): BoxStats {
  const { now } = box;
  const rowsBy = new Map(statuses.map((status) => [status, box.rows(status)]));
  const rows = (status: Status) => rowsBy.get(status) ?? [];
  const counted = (status: Status, since: (row: StatusRow) => number): StatusStats => {
    const found = rows(status);
    if (found.length === 0) return { count: 0 };
    const first = found.reduce((least, row) => Math.min(least, since(row)), Number.POSITIVE_INFINITY);
    return { count: found.length, oldestAgeMs: Math.max(0, now - first) };
  };
  const created = (row: StatusRow) => row.createdAt;
  const moved = (row: StatusRow) => row.updatedAt;
  return {
    pending: counted("pending", created),
    waiting: counted("waiting", created),
    scheduled: counted("scheduled", (row) => row.dueAt ?? now),
    parked: counted("parked", moved),
    ...(withDone && { done: counted("done", moved) }),
    topics: topicsOf([...rows("pending"), ...rows("waiting"), ...rows("scheduled"), ...rows("parked")], now),
    heldKeys: box.heldKeys(),
    paused: box.paused,
    lanes: box.sharing(),
  };
}

function topicsOf(rows: readonly StatusRow[], now: number): BoxStats["topics"] {
  const topics = new Map<string, Record<Status, number> & { first: number }>();
  for (const { message, status, createdAt } of rows) {
    const none = { pending: 0, waiting: 0, scheduled: 0, parked: 0, done: 0, first: Number.POSITIVE_INFINITY };
    const counts = topics.get(message.topic) ?? none;
    counts[status]++;
    if (status === "pending" || status === "waiting") counts.first = Math.min(counts.first, createdAt);
    topics.set(message.topic, counts);
  }
  return [...topics]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([topic, { done: _, first, ...counts }]) => {
      return { topic, ...counts, ...(Number.isFinite(first) && { oldestAgeMs: Math.max(0, now - first) }) };
    });
}

function shown(row: StatusRow): StoredMessage {
  const { status, position, lane, message, attempts, error, createdAt, updatedAt, dueAt } = row;
  return {
    status,
    position,
    lane,
    id: message.id,
    type: message.type,
    topic: message.topic,
    source: message.source,
    ...(message.key !== undefined && { key: message.key }),
    bytes: message.data.byteLength,
    attempts,
    ...(error !== undefined && { lastError: error }),
    createdAt: new Date(createdAt),
    updatedAt: new Date(updatedAt),
    ...(dueAt !== undefined && Number.isFinite(dueAt) && { dueAt: new Date(dueAt) }),
    ...(message.scheduleKey !== undefined && { scheduleKey: message.scheduleKey }),
    ...(status === "done" && { publishedAt: new Date(updatedAt) }),
  };
}

function detailed(row: StatusRow): StoredMessageDetails {
  const failures = row.failures.map(({ attempt, at, error }) => ({ attempt, at: new Date(at), error }));
  return { ...shown(row), message: copyOf(row.message), failures };
}
