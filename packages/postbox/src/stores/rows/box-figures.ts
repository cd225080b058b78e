import type { BoxStats, Status, StatusStats } from "../../admin.js";
import { type BoxSight, isUnroutable } from "../box-problems.js";
import type { BoxRows, StatusRow } from "./box-rows.js";

/** The statistics of a box at one moment, for `admin.stats`. */
export function statsOf(box: BoxRows, withDone: boolean): BoxStats {
  const { now } = box;
  const created = (status: Status) => figures(box.rows(status), (row) => row.createdAt, now);
  const moved = (status: Status) => figures(box.rows(status), (row) => row.updatedAt, now);
  const held = box.heldKeys();
  return {
    pending: created("pending"),
    waiting: created("waiting"),
    scheduled: figures(box.rows("scheduled"), ({ dueAt = now }) => dueAt, now),
    parked: moved("parked"),
    ...(withDone && { done: moved("done") }),
    topics: topicsOf(box),
    heldKeys: { count: held.length, forGood: held.filter(isForGood).length },
    paused: box.paused,
    lanes: box.owners.sharing(),
  };
}

function figures(rows: readonly StatusRow[], since: (row: StatusRow) => number, now: number): StatusStats {
  const [oldest] = sorted(rows, since);
  return oldest === undefined ? { count: 0 } : { count: rows.length, oldestAgeMs: Math.max(0, now - since(oldest)) };
}

function sorted(rows: readonly StatusRow[], since: (row: StatusRow) => number): StatusRow[] {
  return [...rows].sort((one, other) => since(one) - since(other));
}

function topicsOf(box: BoxRows): BoxStats["topics"] {
  const all = (["pending", "waiting", "scheduled", "parked"] as const).flatMap((status) => box.rows(status));
  const byTopic = new Map<string, StatusRow[]>();
  for (const row of all) {
    const rows = byTopic.get(row.message.topic) ?? [];
    rows.push(row);
    byTopic.set(row.message.topic, rows);
  }
  return [...byTopic]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([topic, rows]) => {
      const count = (status: Status) => rows.filter((row) => row.status === status).length;
      const unsent = rows.filter(({ status }) => status === "pending" || status === "waiting");
      const { count: _, ...oldest } = figures(unsent, (row) => row.createdAt, box.now);
      const sendable = { pending: count("pending"), waiting: count("waiting") };
      return { topic, ...sendable, scheduled: count("scheduled"), parked: count("parked"), ...oldest };
    });
}

/** The state of a box at one moment, for `boxProblems`. */
export function sightOf(box: BoxRows): BoxSight {
  const { now, pausedAt } = box;
  const isDue = ({ dueAt = now }: StatusRow) => dueAt <= now;
  const unsentSince = ({ status, createdAt, dueAt = now }: StatusRow) => (status === "pending" ? createdAt : dueAt);
  const waiting = box.rows("waiting");
  const sendable = [...box.rows("pending"), ...waiting.filter(isDue)];
  const failing = waiting.filter(({ error, dueAt }) => error !== undefined && Number.isFinite(dueAt));
  const [unsent] = sorted(sendable, unsentSince);
  const oldestFailing = sorted(failing, (row) => row.createdAt);
  const [retried] = oldestFailing;
  const unroutable = oldestFailing.find(({ error = "" }) => isUnroutable(error));
  const [late] = sorted(box.rows("scheduled").filter(isDue), ({ dueAt = now }) => dueAt);
  const unowned = box.owners.unowned();
  const heldKeys = box.heldKeys().filter(isForGood);
  return {
    ...(unsent && {
      unsent: {
        ...named(unsent),
        status: unsent.status === "pending" ? "pending" : "waiting",
        ageMs: now - unsentSince(unsent),
      },
    }),
    ...(retried && { retried: retriedOf(retried, now) }),
    ...(unroutable && { unroutable: retriedOf(unroutable, now) }),
    ...(late && { late: { ...named(late), lateMs: now - (late.dueAt ?? now) } }),
    unowned: unowned.size,
    unsentUnowned: [...sendable, ...(late ? [late] : [])].some(({ lane }) => unowned.has(lane)),
    relays: box.owners.living(),
    ...(pausedAt !== undefined && { pausedAt: new Date(pausedAt), pausedForMs: now - pausedAt }),
    parked: box.rows("parked").length,
    heldForGood: heldKeys.length,
    heldKeys: heldKeys.map(({ name }) => name),
  };
}

function isForGood({ dueAt }: { readonly dueAt: number }): boolean {
  return dueAt === Number.POSITIVE_INFINITY;
}

function retriedOf(row: StatusRow, now: number) {
  const { createdAt, attempts, error = "" } = row;
  return { ...named(row), ageMs: now - createdAt, attempts, lastError: error };
}

function named({ message: { id, topic } }: StatusRow) {
  return { id, topic };
}
