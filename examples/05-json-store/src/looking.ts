import type { BoxSight, BoxStats, Status } from "postbox/store";
import { isAlive, lanesOf, unowned } from "./lanes.js";
import { isHeld, rowsOf, waitingUnder } from "./rows.js";
import type { BoxState, StoredRow } from "./state.js";

/** A box at one moment, in figures. */
export function statsOf(box: BoxState, withDone: boolean, now: number): BoxStats {
  const stats = (status: Status) => figures(rowsOf(box, status), now);
  // What a message waits under alone is named U+0001 and its id.
  const holds = [...box.holds.values()].filter(({ name }) => !name.startsWith("\u0001"));
  const owners = [...box.members.keys()].sort();
  return {
    pending: stats("pending"),
    waiting: stats("waiting"),
    scheduled: stats("scheduled"),
    parked: stats("parked"),
    ...(withDone ? { done: stats("done") } : {}),
    topics: topics(rowsOf(box, "pending", "waiting", "scheduled", "parked"), now),
    heldKeys: { count: holds.length, forGood: holds.filter(({ dueAt }) => dueAt === Infinity).length },
    paused: box.pausedAt !== undefined,
    lanes: {
      unowned: unowned(box, now).length,
      owners: owners.map((owner) => ({ owner, lanes: lanesOf(box, owner).length, lives: isAlive(box, owner, now) })),
    },
  };
}

function figures(rows: readonly StoredRow[], now: number): BoxStats["pending"] {
  if (rows.length === 0) return { count: 0 };
  const since = ({ status, dueAt, createdAt, updatedAt }: StoredRow) =>
    status === "parked" || status === "done" ? updatedAt : (dueAt ?? createdAt);
  return { count: rows.length, oldestAgeMs: Math.max(0, ...rows.map((row) => now - since(row))) };
}

function topics(rows: readonly StoredRow[], now: number): BoxStats["topics"] {
  const names = [...new Set(rows.map(({ message }) => message.topic))].sort();
  return names.map((topic) => {
    const of = (...statuses: readonly Status[]) =>
      rows.filter(({ message, status }) => message.topic === topic && statuses.includes(status));
    const { count: _, ...oldest } = figures(of("pending", "waiting"), now);
    const [pending, waiting] = [of("pending").length, of("waiting").length];
    return { topic, pending, waiting, scheduled: of("scheduled").length, parked: of("parked").length, ...oldest };
  });
}

/** What `boxProblems` decides about. */
export function sightOf(box: BoxState, now: number): BoxSight {
  const pending = rowsOf(box, "pending");
  const holds = [...box.holds.values()];
  const heads = holds.flatMap((hold) =>
    waitingUnder(box, hold)
      .slice(0, 1)
      .map((row) => ({ row, dueAt: hold.dueAt })),
  );
  const sendable = [
    ...pending.filter((row) => !isHeld(box, row)).map((row) => aged(row, now - row.createdAt)),
    ...heads.filter(({ dueAt }) => dueAt <= now).map(({ row, dueAt }) => aged(row, now - dueAt)),
  ];
  const failing = [
    ...pending.filter(({ attempts }) => attempts > 0),
    ...heads.filter(({ row, dueAt }) => dueAt !== Infinity && row.error !== undefined).map(({ row }) => row),
  ];
  const late = rowsOf(box, "scheduled").map((row) => aged(row, now - (row.dueAt ?? now)));
  const free = unowned(box, now);
  const forGood = holds.filter(({ dueAt }) => dueAt === Infinity);
  const relays = [...box.members].filter(([owner]) => isAlive(box, owner, now));
  return {
    ...first("unsent", sendable),
    ...first(
      "retried",
      failing.map((row) => aged(row, now - row.createdAt)),
    ),
    ...first(
      "late",
      late.filter(({ lateMs }) => lateMs > 0),
    ),
    unowned: free.length,
    unsentUnowned: sendable.some(({ lane }) => free.includes(lane)),
    relays: relays.map(([owner, { order, beat }]) => ({ owner, order, lanes: lanesOf(box, owner).length, beat })),
    ...(box.pausedAt === undefined ? {} : { pausedAt: new Date(box.pausedAt), pausedForMs: now - box.pausedAt }),
    parked: rowsOf(box, "parked").length,
    heldForGood: forGood.length,
    heldKeys: forGood.map(({ name }) => name),
  };
}

function aged({ message: { id, topic }, lane, attempts, error: lastError = "", ...row }: StoredRow, ageMs: number) {
  const status = row.status === "waiting" ? ("waiting" as const) : ("pending" as const);
  return { id, topic, lane, attempts, lastError, status, ageMs, lateMs: ageMs };
}

/** The oldest of them under this name; nothing if there is none. */
function first<N extends string>(name: N, rows: readonly ReturnType<typeof aged>[]) {
  const [oldest] = [...rows].sort((one, other) => other.ageMs - one.ageMs);
  return (oldest === undefined ? {} : { [name]: oldest }) as { readonly [name in N]?: ReturnType<typeof aged> };
}
