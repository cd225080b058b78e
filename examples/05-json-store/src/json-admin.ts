import {
  type AdminPrimitives,
  type CheckedChange,
  type CheckedSelection,
  ConfigError,
  laneOf,
  type MessageFilter,
  requireBox,
  runtimeWith,
  type Status,
  type StoredMessage,
} from "postbox/store";
import { addAudit } from "./audit.js";
import { changes, free } from "./changes.js";
import type { JsonDatabase } from "./database.js";
import { statsOf } from "./looking.js";
import { holdId, messageOf, rowsOf } from "./rows.js";
import type { BoxState, State, StoredRow } from "./state.js";

/** What `createAdmin` asks of a store. */
export function jsonAdmin(database: JsonDatabase): AdminPrimitives {
  const look = async (box: string) => usedBox(await database.committed(), box);
  return {
    runtime: runtimeWith(),
    ...changing(database),
    boxes: async () => [...(await database.committed()).boxes.keys()],
    stats: async (box, withDone) => statsOf(await look(box), withDone, Date.now()),

    async look(name, work) {
      const box = await look(name);
      const found = (status: Status, test: (row: StoredRow) => boolean, limit: number) =>
        rowsOf(box, status).filter(test).reverse().slice(0, limit);
      return work({
        async page({ status, filter, before = Infinity, limit }) {
          const rows = found(status, (row) => row.position < before && fits(row, filter), limit);
          return rows.map((row) => stored(box, row));
        },
        async details(status, id) {
          const rows = found(status, ({ message }) => message.id === id, 1000);
          return rows.map((row) => details(box, row));
        },
      });
    },

    async audit({ box, limit, before = Infinity }) {
      if (box !== undefined) await look(box);
      const { audit } = await database.committed();
      const asked = audit.filter((entry) => entry.number < before && (box === undefined || entry.box === box));
      const page = asked.reverse().slice(0, limit);
      return page.map((entry) => ({ ...entry, at: new Date(entry.at) }));
    },

    async reach(selection, limit) {
      const box = await look(selection.box);
      const rows = selected(box, selection, box.revision);
      const upTo = rows.slice(0, limit).at(-1)?.position ?? 0;
      return { count: Math.min(rows.length, limit + 1), upTo, until: box.revision };
    },
  };
}

function changing(database: JsonDatabase): Pick<AdminPrimitives, "change" | "setPaused" | "release"> {
  // At which revision a change began: what it puts back itself, it does not touch again.
  const began = new WeakMap<CheckedChange, number>();
  return {
    change: (change, { after, upTo, until, limit }) =>
      database.transact((draft) => {
        const box = usedBox(draft, change.box);
        began.set(change, began.get(change) ?? box.revision);
        const token = change.action === "replay" ? (change.confirm ?? "") : "";
        const from = Math.max(after, draft.replays.get(token) ?? 0);
        const rows = selected(box, change, Math.min(until, began.get(change) ?? until))
          .filter(({ position }) => position > from && position <= upTo)
          .slice(0, limit);
        const now = Date.now();
        // Each row as it is then: the change of one before it may have replaced it.
        for (const { position } of rows) changes[change.action](box, box.rows.get(position) as StoredRow, now);
        const last = rows.at(-1)?.position ?? from;
        if (token !== "") draft.replays.set(token, last);
        const { action, by, reason, selection } = change;
        const entry = { action, by, selection, ...(reason === undefined ? {} : { reason }) };
        if (rows.length > 0) addAudit(draft, change.box, { ...entry, ids: rows.map(({ message }) => message.id) }, now);
        return { found: rows.length, count: rows.length, last };
      }),

    setPaused: (paused, { box: name, ...operator }) =>
      database.transact((draft) => {
        const box = usedBox(draft, name);
        if ((box.pausedAt !== undefined) === paused) return;
        box.pausedAt = paused ? Date.now() : undefined;
        addAudit(draft, name, { action: paused ? "pause" : "resume", ...operator }, Date.now());
      }),

    release: (key, { box: name, ...operator }) =>
      database.transact((draft) => {
        const box = usedBox(draft, name);
        const hold = box.holds.get(holdId({ lane: laneOf(key), name: key }));
        if (hold === undefined) return false;
        free(box, hold, Date.now());
        addAudit(draft, name, { action: "release", selection: { key }, ...operator }, Date.now());
        return true;
      }),
  };
}

/** A box that an operator names. */
export function usedBox({ boxes }: State, name: string): BoxState {
  requireBox(name);
  const box = boxes.get(name);
  if (box !== undefined) return box;
  const text = `there is no box "${name}": no such consumer has run; admin.boxes() lists those there are`;
  throw new ConfigError("option-invalid", text, { path: "box" });
}

/** The rows of a selection that had come to their status by that revision, in order of position; for a replay, each id once. */
function selected(box: BoxState, { action, status, filter }: CheckedSelection, until: number): StoredRow[] {
  const rows = rowsOf(box, status).filter((row) => row.revision <= until && fits(row, filter));
  const ids = new Set<string>();
  return rows.filter(({ message: { id } }) => action !== "replay" || (!ids.has(id) && ids.add(id)));
}

function fits({ message, createdAt, attempts, error = "" }: StoredRow, filter: MessageFilter): boolean {
  const { ids, correlationId = message.extensions.correlationid, createdFrom, createdBefore } = filter;
  const named = ["type", "topic", "key", "source"] as const;
  return (
    (ids === undefined || ids.includes(message.id)) &&
    named.every((name) => filter[name] === undefined || filter[name] === message[name]) &&
    correlationId === message.extensions.correlationid &&
    createdAt >= (createdFrom?.getTime() ?? -Infinity) &&
    createdAt < (createdBefore?.getTime() ?? Infinity) &&
    attempts >= (filter.minAttempts ?? 0) &&
    error.includes(filter.error ?? "")
  );
}

/** What an operator sees of a row. */
function stored(box: BoxState, row: StoredRow): StoredMessage {
  const { status, position, lane, attempts, message, hold = "", publishedAt } = row;
  const { id, type, topic, source, key, data } = message;
  const dueAt = status === "waiting" ? box.holds.get(holdId({ lane, name: hold }))?.dueAt : row.dueAt;
  return {
    ...{ status, position, lane, id, type, topic, source, attempts },
    bytes: Buffer.byteLength(data, "base64"),
    createdAt: new Date(row.createdAt),
    updatedAt: new Date(row.updatedAt),
    ...(key === undefined ? {} : { key }),
    ...(row.error === undefined ? {} : { lastError: row.error }),
    ...(dueAt === undefined || dueAt === Infinity ? {} : { dueAt: new Date(dueAt) }),
    ...(row.scheduleKey === undefined ? {} : { scheduleKey: row.scheduleKey }),
    ...(publishedAt === undefined ? {} : { publishedAt: new Date(publishedAt) }),
  };
}

function details(box: BoxState, row: StoredRow) {
  const failures = row.failures.map((failure) => ({ ...failure, at: new Date(failure.at) }));
  return { ...stored(box, row), message: messageOf(row.message), failures };
}
