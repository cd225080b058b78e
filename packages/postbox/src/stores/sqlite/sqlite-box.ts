import { PostboxError } from "../../errors.js";
import { reasonOf } from "../../internal/reason-of.js";
import {
  type Box,
  defaultReadBytes,
  type LateRow,
  type Promoted,
  type Row,
  type Settlement,
  type SettleOptions,
} from "../../store.js";
import { faultOf, type MessageRecord } from "../message-record.js";
import { byPosition, bytesOf, upToBytes } from "../rows/stored-row.js";
import { holdNames, type SettledHold, settlePlan } from "../settle-plan.js";
import type { SqliteAccess } from "./sqlite-access.js";
import { isBusy } from "./sqlite-database.js";
import { type BoxTransaction, messageColumns, messageOf } from "./sqlite-rows.js";

type RowRecord = MessageRecord & {
  readonly position: number;
  readonly lane: number;
  readonly attempts: number;
  readonly crashes: number;
  readonly held: number;
  readonly turn: number;
  readonly created_at: number;
};

const rowColumns = `position, lane, attempts, crashes, turn, created_at, ${messageColumns}`;
const isHeld = `EXISTS (SELECT 1 FROM postbox_hold h WHERE h.box = m.box AND h.lane = m.lane AND h.name = m.key)`;

const readSql = `SELECT ${rowColumns}, ${isHeld} AS held FROM postbox_message m INDEXED BY postbox_pending
  WHERE box = ? AND lane = ? AND status = 'pending' AND position > ? ORDER BY position LIMIT ?`;

const lateSql = `SELECT ${rowColumns}, ${isHeld} AS held FROM postbox_message m INDEXED BY postbox_pending
  WHERE box = ? AND lane = ? AND status = 'pending' AND position > ? AND position <= ?
    AND position NOT IN (SELECT value FROM json_each(?)) ORDER BY position LIMIT ?`;

const dueHoldsSql = `SELECT name FROM postbox_hold h INDEXED BY postbox_hold_due
  WHERE box = ? AND lane = ? AND due_at <= ? AND name NOT IN (SELECT value FROM json_each(?))
    AND EXISTS (SELECT 1 FROM postbox_message INDEXED BY postbox_waiting
      WHERE box = h.box AND lane = h.lane AND status = 'waiting' AND hold = h.name)
  ORDER BY due_at LIMIT ?`;

const waitingSql = `SELECT ${rowColumns}, 0 AS held FROM postbox_message m INDEXED BY postbox_waiting
  WHERE box = ? AND lane = ? AND status = 'waiting' AND hold = ? ORDER BY position LIMIT ?`;

const dueScheduledSql = `SELECT position, length(data) AS bytes FROM postbox_message INDEXED BY postbox_due
  WHERE box = ? AND status = 'scheduled' AND due_at <= ? ORDER BY due_at, position LIMIT ?`;

const nextScheduledSql = `SELECT due_at FROM postbox_message INDEXED BY postbox_due
  WHERE box = ? AND status = 'scheduled' ORDER BY due_at LIMIT 1`;

/** The limit of one `promote` call. What remains is due at once. */
const mostPromotedBytes = 16 * 1024 * 1024;

/**
 * A box in SQLite. Reads see the last commit and wait for nobody. Each writing verb is one transaction: a crash leaves
 * all of it or nothing.
 */
export function sqliteBox(access: SqliteAccess, name: string): Box {
  // Positions are drawn under the lock that only the commit ends.
  return {
    inCommitOrder: true,
    ...readingVerbs(access, name),
    ...owningVerbs(access, name),
    ...writingVerbs(access, name),
  };
}

type Write = <R>(what: string, work: (box: BoxTransaction) => R, signal?: AbortSignal) => Promise<R>;

function writeTo(access: SqliteAccess, name: string): Write {
  return (what, work, signal) => failing(`could not ${what} the box ${name}`, () => access.write(name, work, signal));
}

function readingVerbs(access: SqliteAccess, name: string): Pick<Box, "read" | "due" | "late"> {
  const { reader } = access;
  const read = <R>(look: (box: number) => R): Promise<R> =>
    failing(`could not read the box ${name}`, async () => access.read(() => look(access.boxNumber(name) ?? -1)));

  return {
    read: (lanes, { maxBytes = defaultReadBytes } = {}) =>
      read((box) => {
        const more = new Set<number>();
        const rows: Row[] = [];
        const room = { bytes: maxBytes };
        for (const { lane, after = 0, limit } of lanes) {
          const before = rows.length;
          if (room.bytes > 0) {
            const found = reader.each<RowRecord>(readSql, box, lane, after, limit);
            for (const row of upTo(rowsFrom(found, false), room)) rows.push(row);
          }
          if (rows.length - before >= limit || room.bytes <= 0) more.add(lane);
        }
        return { rows, more, drawn: access.drawn() };
      }),

    due: (lanes, { maxBytes = defaultReadBytes, except = [] } = {}) =>
      read((box) => {
        const known = JSON.stringify(except);
        const rows: Row[] = [];
        const room = { bytes: maxBytes };
        for (const { lane, limit } of lanes) {
          const holds = reader.all<{ readonly name: string }>(dueHoldsSql, box, lane, access.now(), known, limit);
          const each = Math.floor(limit / Math.max(1, holds.length));
          for (const { name: hold } of holds) {
            if (room.bytes <= 0) return rows.sort(byPosition);
            const found = reader.each<RowRecord>(waitingSql, box, lane, hold, each);
            for (const row of upTo(rowsFrom(found, true), room)) rows.push(row);
          }
        }
        return rows.sort(byPosition);
      }),

    // Only for callers that do not know that the box is in commit order.
    late: (gaps, limit, { maxBytes = defaultReadBytes } = {}) =>
      read((box) => {
        const now = access.now();
        const rows = gaps.flatMap(({ lane, after, upTo: last, known }): LateRow[] => {
          const found = reader.each<RowRecord>(lateSql, box, lane, after, last, JSON.stringify(known), limit + 1);
          const withinLane = [...upTo(rowsFrom(found, false), { bytes: maxBytes })];
          return withinLane.map((row) => ({ ...row, ageMs: now - row.createdAt }));
        });
        const first = upToBytes(rows.sort(byPosition).slice(0, limit), maxBytes);
        return { rows: first, more: first.length < rows.length };
      }),
  };
}

/** Passes on rows until one of them fills the room. */
function* upTo<R extends Row>(rows: Iterable<R>, room: { bytes: number }): Iterable<R> {
  for (const row of rows) {
    yield row;
    room.bytes -= bytesOf(row);
    if (room.bytes <= 0) return;
  }
}

function owningVerbs(access: SqliteAccess, name: string): Pick<Box, "renew" | "own" | "release"> {
  const write = writeTo(access, name);
  const isPaused = ({ box }: BoxTransaction) => access.pausedAt(box) !== undefined;

  return {
    renew(owner, leaseMs, order, signal) {
      const renew = (box: BoxTransaction) => ({
        paused: isPaused(box),
        ...box.changeOwners((owners) => owners.renew(owner, leaseMs, order)),
      });
      return write("renew a lease on", renew, signal);
    },

    own(owner, most, options, signal) {
      const own = (box: BoxTransaction) =>
        isPaused(box) ? [] : box.changeOwners((owners) => owners.own(owner, most, options));
      return write("take lanes of", own, signal);
    },

    release(owner, lanes, signal) {
      const release = (box: BoxTransaction) => box.changeOwners((owners) => owners.release(owner, lanes));
      return write("give back lanes of", release, signal);
    },
  };
}

function writingVerbs(access: SqliteAccess, name: string): Pick<Box, "promote" | "suspect" | "settle"> {
  const write = writeTo(access, name);

  return {
    promote: (limit, signal) => write("append what is due in", (box) => promote(box, limit), signal),

    suspect(lanes, rows, signal) {
      const suspect = (box: BoxTransaction) => {
        const standing = box.owners().standing(lanes);
        const sql = "UPDATE postbox_message SET crashes = ? WHERE position = ? AND box = ? AND id = ? AND status = ?";
        for (const { lane, position, message, waiting, crashes } of rows) {
          if (!standing.has(lane)) continue;
          box.connection.run(sql, crashes, position, box.box, message.id, waiting ? "waiting" : "pending");
        }
        return standing;
      };
      return write("store crashes in", suspect, signal);
    },

    settle(lanes, settlements, options, signal) {
      const settleStanding = (box: BoxTransaction) => {
        const standing = box.owners().standing(lanes);
        const fenced = settlements.filter(({ row }) => standing.has(row.lane));
        settle(box, fenced, options);
        return { standing };
      };
      return write("settle messages of", settleStanding, signal);
    },
  };
}

function promote(box: BoxTransaction, limit: number): Promoted {
  const { connection, now } = box;
  const found = connection.all<{ readonly position: number; readonly bytes: number }>(
    dueScheduledSql,
    box.box,
    now,
    limit,
  );
  let [count, bytes] = [0, 0];
  for (const due of found) {
    if (bytes >= mostPromotedBytes) break;
    bytes += Number(due.bytes);
    count++;
    box.appendAgain(Number(due.position));
    box.delete(Number(due.position));
  }
  const next = connection.first<{ readonly due_at: number }>(nextScheduledSql, box.box);
  return { count, ...(next !== undefined && { nextInMs: Math.max(0, Number(next.due_at) - now) }) };
}

const deleteSent = `DELETE FROM postbox_message
  WHERE position = ? AND box = ? AND id = ? AND lane = ? AND status = 'pending'`;
const keepSent = `UPDATE postbox_message SET status = 'done', attempts = attempts + 1, crashes = 0, updated_at = ?,
  revision = ? WHERE position = ? AND box = ? AND id = ? AND lane = ? AND status = 'pending'`;

/** Writes what becomes of rows. The epochs of their lanes must be current: that is not checked here. */
export function settle(
  box: BoxTransaction,
  settlements: readonly Settlement[],
  { keep = false, alone = false }: SettleOptions = {},
): void {
  const { connection, now } = box;
  const others: Settlement[] = [];
  for (const settlement of settlements) {
    const { row, to } = settlement;
    const { position, lane, message } = row;
    // Most rows: no other row and no hold depends on them.
    if (to !== "sent" || row.waiting) others.push(settlement);
    else if (keep) connection.run(keepSent, now, box.revision, position, box.box, message.id, lane);
    else connection.run(deleteSent, position, box.box, message.id, lane);
  }
  if (others.length === 0) return;
  const rows = others.flatMap(({ row }) => {
    const found = box.at(row.position);
    const status = row.waiting ? "waiting" : "pending";
    return found?.status === status && found.lane === row.lane ? [found] : [];
  });
  const holds = new Map<string, SettledHold>();
  for (const { lane, message } of [...others.map(({ row }) => row), ...rows]) {
    for (const name of holdNames(message)) {
      const hold = holds.has(`${lane} ${name}`) ? undefined : box.hold(lane, name, rows.length + 1);
      if (hold !== undefined) holds.set(`${lane} ${name}`, hold);
    }
  }
  const plan = settlePlan({ rows, holds: [...holds.values()], now }, others, { alone });
  for (const { lane, name, dueAt } of plan.held) box.setHold(lane, name, dueAt);
  for (const { before, to, after } of plan.rows) {
    if (to === "dropped" || (to === "sent" && !keep)) box.delete(before.position);
    else box.write(statusOf[to], after);
  }
  for (const { lane, name } of plan.freed) box.endHold(lane, name);
  for (const drop of plan.drops) box.audit({ action: "drop", by: "relay", ...drop });
}

const statusOf = { sent: "done", wait: "waiting", parked: "parked", pending: "pending" } as const;

function* rowsFrom(records: Iterable<RowRecord>, waiting: boolean): Iterable<Row & { readonly createdAt: number }> {
  for (const record of records) {
    const { message, unreadable } = messageOf(record);
    yield {
      lane: Number(record.lane),
      position: Number(record.position),
      message,
      attempts: Number(record.attempts),
      crashes: Number(record.crashes),
      waiting,
      held: Number(record.held) === 1,
      ...(waiting && { turn: Number(record.turn) }),
      ...(unreadable !== undefined && { fault: faultOf(unreadable) }),
      createdAt: Number(record.created_at),
    };
  }
}

/** Passes on errors that say what to do, and explains the others. */
export async function failing<R>(what: string, work: () => Promise<R>): Promise<R> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof PostboxError || (error instanceof Error && error.name === "AbortError")) throw error;
    if (!isSqlite(error)) throw error;
    throw new PostboxError("store-failed", `${what} in SQLite: ${reasonOf(error)}`, { cause: error });
  }
}

function isSqlite(error: unknown): boolean {
  const { code, errcode } = (error ?? {}) as { readonly code?: unknown; readonly errcode?: unknown };
  return isBusy(error) || errcode !== undefined || (typeof code === "string" && code.startsWith("SQLITE_"));
}
