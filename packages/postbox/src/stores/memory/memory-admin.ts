import type {
  Admin,
  BoxStats,
  MessageFilter,
  Status,
  StatusStats,
  StoredMessage,
  StoredMessageDetails,
} from "../../admin.js";
import { type ChangeAction, type CheckedChange, type CheckedSelection, statuses } from "../admin-options.js";
import type { ChangedStep } from "../change-batches.js";
import { type BoundedStep, type BoxView, createAdmin } from "../create-admin.js";
import type { MemoryBox, StatusRow } from "./memory-box.js";
import type { MemoryData } from "./memory-database.js";
import { copyOf } from "./memory-lane.js";

/**
 * What a database in memory does for its operators. Whatever happens between two awaits is one step to everybody else: so is each
 * look, and each batch of a change with its entry in the audit.
 */
export function memoryAdmin(data: MemoryData): Admin {
  return createAdmin({
    runtime: data.runtime,
    boxes: async () => data.boxNames(),
    stats: async (box, withDone) => statsOf(data.existingBox(box), withDone),
    look: async (box, work) => work(viewOf(data.existingBox(box))),

    async audit({ box, limit, before }) {
      if (box !== undefined) data.existingBox(box);
      return data.audit.read(box, limit, before);
    },

    async reach(selection, limit) {
      const fitting = selected(data.existingBox(selection.box), selection);
      const positions = fitting.slice(0, limit).map(({ position }) => position);
      const count = Math.min(fitting.length, limit + 1);
      return { count, upTo: positions.at(-1) ?? 0, until: data.rememberDryRun(positions) };
    },

    change: async (change, step) => changeRows(data, change, step),

    async setPaused(paused, { box: name, ...operator }) {
      const box = data.existingBox(name);
      if (box.paused === paused) return;
      box.pausedAt = paused ? box.now : undefined;
      data.audit.write(name, box.now, { action: paused ? "pause" : "resume", ...operator, count: 0, ids: [] });
    },

    async release(key, { box: name, ...operator }) {
      const box = data.existingBox(name);
      const released = box.letGo(key);
      const entry = { action: "release", ...operator, selection: { key }, count: 0, ids: [] } as const;
      if (released) data.audit.write(name, box.now, entry);
      return released;
    },
  });
}

function viewOf(box: MemoryBox): BoxView {
  return {
    page: async ({ status, filter, before = Number.POSITIVE_INFINITY, limit }) =>
      box
        .rows(status)
        .filter((row) => row.position < before && fits(row, filter))
        .reverse()
        .slice(0, limit)
        .map(shown),
    details: async (status, id) =>
      box
        .rows(status)
        .filter(({ message }) => message.id === id)
        .reverse()
        .map(detailed),
  };
}

const applied: Readonly<Record<ChangeAction, (box: MemoryBox, row: StatusRow) => void>> = {
  retry: (box, row) => box.retry(row),
  discard: (box, row) => box.remove(row),
  replay: (box, row) => box.appendAgain(row),
};

function changeRows(data: MemoryData, change: CheckedChange, { after, upTo, until, limit }: BoundedStep): ChangedStep {
  const { action, selection, by, reason } = change;
  const box = data.existingBox(change.box);
  const counted = data.dryRun(until);
  const done = action === "replay" ? data.audit.lastOf(change.confirm) : 0;
  const rows = selected(box, change)
    .filter(({ position }) => position > Math.max(after, done) && position <= upTo)
    .filter(({ position }) => counted?.has(position) ?? true)
    .slice(0, limit);
  for (const row of rows) applied[action](box, row);
  const ids = rows.map(({ message }) => message.id);
  const who = reason === undefined ? { by } : { by, reason };
  const last = rows.at(-1)?.position ?? after;
  const entry = { action, ...who, selection, count: ids.length, ids };
  if (ids.length > 0) data.audit.write(change.box, box.now, entry, change.confirm, last);
  return { found: ids.length, count: ids.length, last };
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
