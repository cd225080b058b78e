import {
  type Box,
  defaultReadBytes,
  type Lane,
  type LateRow,
  type Promoted,
  type Row,
  type Settlement,
  type SettleOptions,
} from "../../store.js";
import { isLocked } from "../../transactions/mysql-errors.js";
import { faultOf } from "../message-record.js";
import { BoxOwners } from "../rows/box-owners.js";
import { byPosition, bytesOf } from "../rows/stored-row.js";
import { holdNames, settlePlan } from "../settle-plan.js";
import { failing, type MysqlAccess, type Transaction } from "./mysql-access.js";
import {
  BoxTransaction,
  chunks,
  messageColumns,
  messageColumnsOfM,
  messageOf,
  type PlacedRow,
  registerSql,
} from "./mysql-rows.js";
import { msOf, nowSql, storedTime, type Tables } from "./names.js";
import type { Answer, Session } from "./own-connections.js";
import { type DueHold, dueHoldsSql, lateSql, readSql, waitingSql } from "./read-sql.js";
import type { Server } from "./server.js";
import { forgetWriters, readWithWriters } from "./writers.js";

/** The limit of one `promote` call. What remains is due at once. */
const mostPromotedBytes = 16 * 1024 * 1024;
/** After how many renewals a member removes old registrations of writers: about every ten minutes. */
const renewalsPerCleaning = 60;
/** How many holds one statement reads. */
const mostHolds = 64;

/**
 * A box in MySQL. Each writing verb is one transaction: a crash leaves all of it or nothing. If the answer to a verb is
 * lost, it may be called again.
 */
export function mysqlBox(access: MysqlAccess, name: string): Box {
  return { ...readingVerbs(access, name), ...owningVerbs(access, name), ...writingVerbs(access, name) };
}

type Write = <R>(
  what: string,
  work: (transaction: Transaction, box: number) => Promise<R>,
  signal: AbortSignal | undefined,
  on?: "renewals",
) => Promise<R>;

function writeTo(access: MysqlAccess, name: string): Write {
  return (what, work, signal, on) =>
    failing(`could not ${what} the box ${name}`, access.database, async () => {
      const box = await access.box(name);
      return access.transact((transaction) => work(transaction, box), signal, on && access.connections[on]);
    });
}

function readingVerbs(access: MysqlAccess, name: string): Pick<Box, "read" | "due" | "late"> {
  const { t, database } = access;
  const read = <R>(look: (session: Session, box: number) => Promise<R>, signal: AbortSignal | undefined): Promise<R> =>
    failing(`could not read the box ${name}`, database, async () => {
      const box = (await access.number(name)) ?? 0;
      return access.read((session) => look(session, box), signal);
    });

  return {
    read: (lanes, { maxBytes = defaultReadBytes } = {}, signal) =>
      read(async (session, box) => {
        const sql = readSql(t, box, lanes, maxBytes);
        const { answer, writers, drawn, server } = await readWithWriters(session, t, database, access.server, sql);
        const byTurn = byPlace(answer);
        const more = new Set<number>();
        const rows: Row[] = [];
        let bytes = 0;
        for (const [place, { lane, limit }] of lanes.entries()) {
          const all = byTurn.get(place) ?? [];
          // Rows that were appended while this was read: the writers below them may be unknown.
          const found = all.filter(({ position }) => position <= drawn);
          for (const row of found) bytes += bytesOf(row);
          rows.push(...found);
          if (all.length >= limit || found.length < all.length || bytes >= maxBytes) more.add(lane);
        }
        return { rows, writers, more, drawn, server };
      }, signal),

    due: (lanes, { maxBytes = defaultReadBytes, except = [] } = {}, signal) =>
      read(async (session, box) => {
        if (lanes.length === 0) return [];
        const holds = await dueHolds(session, t, box, lanes, except);
        const rows: Row[] = [];
        let left = maxBytes;
        for (let from = 0; from < holds.length && left > 0; from += mostHolds) {
          const answer = await session.run(...waitingSql(t, box, holds.slice(from, from + mostHolds), left));
          for (const record of answer.rows) {
            const row = rowFrom(record, true);
            rows.push(row);
            left -= bytesOf(row);
          }
        }
        return rows.sort(byPosition);
      }, signal),

    late: (gaps, limit, { maxBytes = defaultReadBytes } = {}, signal) =>
      read(async (session, box) => {
        const sql = lateSql(t, box, gaps, limit, maxBytes);
        const { answer, writers } = await readWithWriters(session, t, database, access.server, sql);
        const found: LateRow[] = answer.rows
          .map((record) => ({ ...rowFrom(record, false), ageMs: msOf(record.age) }))
          .sort(byPosition);
        const rows = found.slice(0, limit);
        const bytes = found.reduce((sum, row) => sum + bytesOf(row), 0);
        return { rows, writers, more: found.length > limit || bytes >= maxBytes };
      }, signal),
  };
}

async function dueHolds(
  session: Session,
  t: Tables,
  box: number,
  lanes: Parameters<Box["due"]>[0],
  except: readonly string[],
): Promise<readonly DueHold[]> {
  const { rows } = await session.run(...dueHoldsSql(t, box, lanes, except));
  return lanes.flatMap(({ lane, limit }) => {
    const names = rows.filter((row) => Number(row.lane) === lane).map((row) => String(row.name));
    return names.map((name) => ({ lane, name, limit: Math.floor(limit / names.length) }));
  });
}

function owningVerbs(access: MysqlAccess, name: string): Pick<Box, "renew" | "own" | "release"> {
  const write = writeTo(access, name);
  const { t } = access;

  return {
    async renew(owner, leaseMs, order, signal) {
      const { beat, ...membership } = await write(
        "renew a lease on",
        async (transaction, box) => {
          const [, members, lanes, state] = await transaction.runAll([
            [
              `INSERT INTO ${t.member} (box, owner, relay_order, beat, lease_ms, expires_at)
               VALUES (?, ?, ?, 1, ?, ${nowSql} + ?) ON DUPLICATE KEY UPDATE relay_order = VALUES(relay_order),
                 beat = beat + 1, lease_ms = VALUES(lease_ms), expires_at = VALUES(expires_at)`,
              [box, owner, order, leaseMs, storedTime(leaseMs)],
            ],
            ...ownersSql(t, box),
            [`SELECT paused_at FROM ${t.box} WHERE number = ?`, [box]],
          ]);
          const renewed = ownersFrom(members, lanes).renew(owner, leaseMs, order);
          const shown = new Set([owner, ...renewed.others.map((other) => other.owner)]);
          for (const { owner: gone } of members?.rows ?? []) {
            if (shown.has(String(gone))) continue;
            await transaction.run(`DELETE FROM ${t.member} WHERE box = ? AND owner = ?`, [box, gone]);
          }
          const own = members?.rows.find((member) => member.owner === owner);
          return { paused: state?.rows[0]?.paused_at != null, ...renewed, beat: Number(own?.beat) };
        },
        signal,
        "renewals",
      );
      // If it fails, another renewal tries it again.
      if (beat % renewalsPerCleaning === 0) await forgetWriters(access).catch(() => {});
      return membership;
    },

    own: (owner, most, options = {}, signal) =>
      write(
        "take lanes of",
        async (transaction, box) => {
          // Members that take lanes at the same time wait for each other here.
          const [state, members, lanes] = await transaction.runAll([
            [`SELECT paused_at FROM ${t.box} WHERE number = ? FOR UPDATE`, [box]],
            ...ownersSql(t, box),
          ]);
          if (state?.rows[0]?.paused_at != null) return [];
          const wanted = ownersFrom(members, lanes).own(owner, most, options);
          if (wanted.length === 0) return [];
          const free = await transaction.run(
            `SELECT lane, epoch FROM ${t.lane} FORCE INDEX (PRIMARY) WHERE box = ? AND lane IN (?) ORDER BY lane
             FOR UPDATE ${skipLocked(access.server)}`,
            [box, wanted.map(({ lane }) => lane)],
          );
          const epochs = new Map(free.rows.map(({ lane, epoch }) => [Number(lane), Number(epoch)]));
          const taken = wanted.filter(({ lane, epoch }) => epochs.get(lane) === epoch - 1);
          if (taken.length === 0 || taken.length < (options.least ?? 0)) return [];
          await transaction.run(
            `UPDATE ${t.lane} FORCE INDEX (PRIMARY) SET epoch = epoch + 1, owner = ?, clean = FALSE
             WHERE box = ? AND lane IN (?)`,
            [owner, box, taken.map(({ lane }) => lane)],
          );
          return taken;
        },
        signal,
      ),

    release: (owner, lanes, signal) =>
      write(
        "give back lanes of",
        async (transaction, box) => {
          if (lanes?.length === 0) return;
          const own = (lanes ?? []).map(({ lane, epoch }) => `(lane = ${lane} AND epoch = ${epoch})`).join(" OR ");
          await transaction.run(
            `UPDATE ${t.lane} FORCE INDEX (PRIMARY) SET owner = NULL, clean = TRUE
             WHERE box = ? AND owner = ? ${lanes === undefined ? "" : `AND (${own})`}`,
            [box, owner],
          );
          if (lanes === undefined) {
            await transaction.run(`DELETE FROM ${t.member} WHERE box = ? AND owner = ?`, [box, owner]);
          }
        },
        signal,
        lanes === undefined ? "renewals" : undefined,
      ),
  };
}

function writingVerbs(access: MysqlAccess, name: string): Pick<Box, "promote" | "suspect" | "settle"> {
  const write = writeTo(access, name);
  const { t } = access;

  return {
    promote: (limit, signal) =>
      failing(`could not append what is due in the box ${name}`, access.database, async () => {
        const box = await access.box(name);
        // Nearly always nothing is due, which needs no transaction.
        const next = await access.read((session) => nextScheduled(session, t, box, false), signal);
        if (next === undefined || next.inMs > 0) return promotedWith(0, next);
        return access.transact((transaction) => promote(transaction, access, box, limit), signal);
      }),

    suspect: (lanes, rows, signal) =>
      write(
        "store crashes in",
        async (transaction, box) => {
          const standing = await fence(transaction, access, box, lanes, "shared");
          const told = rows.filter(({ lane }) => standing.has(lane));
          for (const waiting of [false, true]) {
            const suspects = told.filter((row) => row.waiting === waiting);
            for (const part of chunks(suspects, ({ message }) => 2 * message.id.length)) {
              const values = part.map((_, index) =>
                index === 0 ? "SELECT ? AS lane, ? AS position, ? AS crashes, ? AS id" : "SELECT ?, ?, ?, ?",
              );
              await transaction.run(
                `UPDATE (${values.join(" UNION ALL ")}) v STRAIGHT_JOIN ${waiting ? t.waiting : t.pending} m
                   FORCE INDEX (PRIMARY) ON m.box = ${box} AND m.lane = v.lane AND m.position = v.position
                 SET m.crashes = v.crashes WHERE CAST(m.id AS BINARY) = v.id`,
                part.flatMap(({ lane, position, crashes, message }) => [
                  lane,
                  position,
                  crashes,
                  Buffer.from(message.id),
                ]),
              );
            }
          }
          return standing;
        },
        signal,
      ),

    settle: (lanes, settlements, options = {}, signal) =>
      write(
        "settle messages of",
        async (transaction, box) => {
          const isPlain = settlements.every(({ to, row }) => to === "sent" && !row.waiting);
          const standing = await fence(transaction, access, box, lanes, isPlain ? "shared" : "exclusive");
          const fenced = settlements.filter(({ row }) => standing.has(row.lane));
          if (isPlain) await settleSent(transaction, t, box, fenced, options.keep === true);
          else await settle(transaction, t, box, fenced, options);
          return { standing };
        },
        signal,
      ),
  };
}

/**
 * Locks lanes against a take-over, in order of their numbers. Returns those whose epoch is current. Sharing is enough
 * to remove rows that no other row depends on.
 */
async function fence(
  session: Session,
  { t, server }: MysqlAccess,
  box: number,
  lanes: readonly Lane[],
  how: "shared" | "exclusive",
): Promise<ReadonlySet<number>> {
  if (lanes.length === 0) return new Set();
  const { rows } = await session.run(
    `SELECT lane, epoch FROM ${t.lane} FORCE INDEX (PRIMARY) WHERE box = ? AND lane IN (?) ORDER BY lane
     ${how === "shared" ? sharedLock(server) : "FOR UPDATE"}`,
    [box, lanes.map(({ lane }) => lane)],
  );
  const epochs = new Map(rows.map(({ lane, epoch }) => [Number(lane), Number(epoch)]));
  return new Set(lanes.filter(({ lane, epoch }) => epochs.get(lane) === epoch).map(({ lane }) => lane));
}

/** TiDB accepts a shared lock and takes none. */
export function sharedLock({ flavor }: Server): string {
  return flavor === "tidb" ? "FOR UPDATE" : "LOCK IN SHARE MODE";
}

function skipLocked({ skipsLocked }: Server): string {
  return skipsLocked ? "SKIP LOCKED" : "";
}

/** Rows that were sent from `pending`: no other row and no hold depends on them. Commits, to save a round trip. */
async function settleSent(
  transaction: Transaction,
  t: Tables,
  box: number,
  settlements: readonly Settlement[],
  keep: boolean,
): Promise<void> {
  const parts = [...chunks(settlements, ({ row }) => 2 * row.message.id.length + 64)];
  for (const [index, part] of parts.entries()) {
    const rows = part.map(() => "(lane = ? AND position = ? AND id = ?)").join(" OR ");
    const params = part.flatMap(({ row }) => [row.lane, row.position, row.message.id]);
    const where = `FORCE INDEX (PRIMARY) WHERE box = ${box} AND (${rows})`;
    const copy = `INSERT INTO ${t.done} (box, lane, position, ${messageColumns}, created_at, attempts, crashes,
        last_error, failures, updated_at)
      SELECT m.box, m.lane, m.position, ${messageColumnsOfM}, m.created_at, m.attempts + 1, 0, m.last_error, m.failures,
        ${nowSql} FROM ${t.pending} m ${where} ORDER BY m.position`;
    const remove = `DELETE FROM ${t.pending} USING ${t.pending} ${where}`;
    const statements = [...(keep ? [[copy, params] as const] : []), [remove, params] as const];
    if (index === parts.length - 1) await transaction.commitWith(statements);
    else await transaction.runAll(statements);
  }
}

/** Writes what becomes of rows. Their lanes are locked, and their epochs current. */
export async function settle(
  session: Session,
  t: Tables,
  box: number,
  settlements: readonly Settlement[],
  { keep = false, alone = false }: SettleOptions = {},
): Promise<void> {
  if (settlements.length === 0) return;
  const { rows: clock } = await session.run(`SELECT ${nowSql} AS now`);
  const change = new BoxTransaction(session, t, box, msOf(clock[0]?.now));
  const places = (waiting: boolean) => settlements.map(({ row }) => row).filter((row) => row.waiting === waiting);
  const rows: PlacedRow[] = [
    ...(await change.rowsAt("pending", places(false))),
    ...(await change.rowsAt("waiting", places(true))),
  ];
  const names = new Map<number, Set<string>>();
  for (const { lane, message } of [...settlements.map(({ row }) => row), ...rows]) {
    const known = names.get(lane) ?? new Set();
    for (const each of holdNames(message)) known.add(each);
    names.set(lane, known);
  }
  const holds = await change.holds(names, rows);
  await change.write(settlePlan({ rows, holds, now: change.now }, settlements, { alone }), keep);
}

interface Next {
  readonly inMs: number;
}

/** The first scheduled message; with `notDue`, the first that is not due yet. */
async function nextScheduled(session: Session, t: Tables, box: number, notDue: boolean): Promise<Next | undefined> {
  const { rows } = await session.run(
    `SELECT due_at, ${nowSql} AS now FROM ${t.scheduled} FORCE INDEX (PRIMARY)
     WHERE box = ${box} ${notDue ? `AND due_at > ${nowSql}` : ""} ORDER BY due_at LIMIT 1`,
  );
  const [first] = rows;
  return first && { inMs: Math.max(0, msOf(first.due_at) - msOf(first.now)) };
}

function promotedWith(count: number, next: Next | undefined): Promoted {
  return next === undefined ? { count } : { count, nextInMs: next.inMs };
}

async function promote(transaction: Transaction, access: MysqlAccess, box: number, limit: number): Promise<Promoted> {
  const { t } = access;
  const rows = await lockDue(transaction, access, box, limit);
  let bytes = 0;
  const taken = rows.filter((row) => {
    const fits = bytes < mostPromotedBytes;
    bytes += Number(row.bytes);
    return fits;
  });
  if (taken.length > 0) {
    const places = taken.map(({ due_at, position }) => `(due_at = ${due_at} AND position = ${position})`);
    const where = `FORCE INDEX (PRIMARY) WHERE box = ${box} AND (${places.join(" OR ")})`;
    await transaction.runAll([
      [registerSql(t)],
      [
        `INSERT INTO ${t.pending} (box, lane, ${messageColumns}, created_at)
         SELECT m.box, m.lane, ${messageColumnsOfM}, ${nowSql} FROM ${t.scheduled} m ${where}
         ORDER BY m.due_at, m.position`,
      ],
      [`DELETE FROM ${t.scheduled} USING ${t.scheduled} ${where}`],
    ]);
  }
  if (taken.length === limit || taken.length < rows.length) return { count: taken.length, nextInMs: 0 };
  // If nothing could be appended, the due messages are locked: the next poll tries again, not an immediate call.
  return promotedWith(taken.length, await nextScheduled(transaction, t, box, taken.length === 0));
}

/** Locks scheduled messages that are due, except those that an open transaction has replaced or cancelled. */
async function lockDue(transaction: Transaction, { t, server }: MysqlAccess, box: number, limit: number) {
  const due = (lock: string) =>
    `SELECT due_at, position, bytes FROM ${t.scheduled} FORCE INDEX (PRIMARY)
     WHERE box = ${box} AND due_at <= ${nowSql} ORDER BY due_at, position LIMIT ${limit} ${lock}`;
  if (server.skipsLocked) return (await transaction.run(due("FOR UPDATE SKIP LOCKED"))).rows;
  const found = await transaction.run(due(""));
  const locked: Readonly<Record<string, unknown>>[] = [];
  for (const { due_at, position } of found.rows) {
    const one = `SELECT due_at, position, bytes FROM ${t.scheduled} FORCE INDEX (PRIMARY)
      WHERE box = ${box} AND due_at = ${due_at} AND position = ${position} FOR UPDATE NOWAIT`;
    try {
      locked.push(...(await transaction.run(one)).rows);
    } catch (error) {
      // Only this statement was undone.
      if (!isLocked(error)) throw error;
    }
  }
  return locked;
}

/** The rows of each branch of a read, in order of position. */
function byPlace({ rows }: Answer): ReadonlyMap<number, readonly Row[]> {
  const groups = new Map<number, Row[]>();
  for (const record of rows) {
    const place = Number(record.place);
    const group = groups.get(place);
    if (group === undefined) groups.set(place, [rowFrom(record, false)]);
    else group.push(rowFrom(record, false));
  }
  for (const group of groups.values()) group.sort(byPosition);
  return groups;
}

function rowFrom(record: Readonly<Record<string, unknown>>, waiting: boolean): Row {
  const { message, unreadable } = messageOf(record);
  return {
    lane: Number(record.lane),
    position: Number(record.position),
    message,
    attempts: Number(record.attempts),
    crashes: Number(record.crashes),
    waiting,
    held: Number(record.held) === 1,
    ...(waiting && { turn: Number(record.turn) }),
    ...(unreadable !== undefined && { fault: faultOf(unreadable) }),
  };
}

/** The members of a box and the owner of each lane. */
export function ownersSql(t: Tables, box: number): readonly (readonly [string])[] {
  return [
    [
      `SELECT owner, relay_order, beat, lease_ms, expires_at, ${nowSql} AS now FROM ${t.member} FORCE INDEX (PRIMARY)
       WHERE box = ${box}`,
    ],
    [
      `SELECT lane, epoch, owner, clean, ${nowSql} AS now FROM ${t.lane} FORCE INDEX (PRIMARY)
       WHERE box = ${box} ORDER BY lane`,
    ],
  ];
}

/** What `ownersSql` found. */
export function ownersFrom(members: Answer | undefined, lanes: Answer | undefined): BoxOwners {
  const now = msOf(lanes?.rows[0]?.now);
  const owners = new BoxOwners(() => now);
  owners.restore({
    lanes: (lanes?.rows ?? []).map(({ lane, epoch, owner, clean }) => [
      Number(lane),
      { epoch: Number(epoch), clean: Number(clean) === 1, ...(owner !== null && { owner: String(owner) }) },
    ]),
    members: (members?.rows ?? []).map(({ owner, relay_order, beat, lease_ms, expires_at }) => [
      String(owner),
      { order: relay_order, beat: Number(beat), leaseMs: Number(lease_ms), expiresAt: msOf(expires_at) },
    ]),
  });
  return owners;
}
