import type { Admin, MessageFilter, Status, StoredMessage, StoredMessageDetails } from "../../admin.js";
import { type ChangeAction, type CheckedChange, type CheckedSelection, statuses } from "../admin-options.js";
import type { ChangedStep } from "../change-batches.js";
import { type BoundedStep, type BoxView, createAdmin } from "../create-admin.js";
import { statsOf } from "./box-figures.js";
import type { BoxRows, StatusRow } from "./box-rows.js";
import type { RowsAccess } from "./over-rows.js";
import type { StoreRows } from "./store-rows.js";
import { copyOf } from "./stored-row.js";

/** `Store.admin`. Each read, and each batch of a change with its audit entry, is one step on the rows. */
export function rowsAdmin({ runtime, read, change }: RowsAccess): Admin {
  return createAdmin({
    runtime,
    boxes: () => read((rows) => rows.boxNames()),
    stats: (box, withDone) => read((rows) => statsOf(rows.used(box), withDone)),
    look: async (box, work) => work(await read((rows) => viewOf(rows.used(box)))),

    audit: (asked) =>
      read((rows) => {
        if (asked.box !== undefined) rows.used(asked.box);
        return rows.audit.read(asked);
      }),

    reach: (selection, limit) =>
      read((rows) => {
        const box = rows.used(selection.box);
        const found = selected(box, selection);
        const upTo = found.slice(0, limit).at(-1)?.position ?? 0;
        return { count: Math.min(found.length, limit + 1), upTo, until: box.revision };
      }),

    change: (checked, step) => change((rows) => changeRows(rows, checked, step)),

    setPaused: (paused, { box: name, ...operator }) =>
      change((rows) => {
        const box = rows.used(name);
        if (box.paused === paused) return;
        box.pausedAt = paused ? rows.now() : undefined;
        rows.audit.add(name, rows.now(), { action: paused ? "pause" : "resume", ...operator });
      }),

    release: (key, { box: name, ...operator }) =>
      change((rows) => {
        const released = rows.used(name).letGo(key);
        if (released) rows.audit.add(name, rows.now(), { action: "release", ...operator, selection: { key } });
        return released;
      }),
  });
}

/** Of one moment: rows may move between two calls. */
function viewOf(box: BoxRows): BoxView {
  const all = new Map(statuses.map((status) => [status, box.rows(status)]));
  const rows = (status: Status) => all.get(status) ?? [];
  return {
    page: async ({ status, filter, before = Number.POSITIVE_INFINITY, limit }) =>
      rows(status)
        .filter((row) => row.position < before && fits(row, filter))
        .reverse()
        .slice(0, limit)
        .map(shown),
    details: async (status, id) =>
      rows(status)
        .filter(({ message }) => message.id === id)
        .reverse()
        .map(detailed),
  };
}

const applied: Readonly<Record<ChangeAction, (box: BoxRows, row: StatusRow) => void>> = {
  retry: (box, row) => box.retry(row),
  discard: (box, row) => box.remove(row),
  replay: (box, row) => box.appendAgain(row),
};

function changeRows(all: StoreRows, change: CheckedChange, { after, upTo, until, limit }: BoundedStep): ChangedStep {
  const { action, selection, by, reason } = change;
  const box = all.used(change.box);
  const from = Math.max(after, action === "replay" ? all.audit.lastOf(change.confirm) : 0);
  const rows = selected(box, change)
    .filter(({ position, revision }) => position > from && position <= upTo && revision <= until)
    .slice(0, limit);
  for (const row of rows) applied[action](box, row);
  const ids = rows.map(({ message }) => message.id);
  const last = rows.at(-1)?.position ?? after;
  if (ids.length > 0) {
    all.audit.add(change.box, all.now(), { action, by, ...(reason !== undefined && { reason }), selection, ids });
    all.audit.reached(change.confirm, last);
  }
  return { found: ids.length, count: ids.length, last };
}

/** In order of position. A replay takes each message once, however often it was replayed before. */
function selected(box: BoxRows, { action, status, filter }: CheckedSelection): StatusRow[] {
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
