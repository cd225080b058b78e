import { PermanentError, PostboxError } from "../../errors.js";
import { laneOf } from "../../internal/lane.js";
import {
  type Arrival,
  type Aside,
  type Inbox,
  inboxOf,
  type Remembered,
  type RememberOptions,
  type Row,
  type TransactionLibrary,
} from "../../store.js";
import { duplicateEntry, interrupted, mysqlNumber } from "../../transactions/mysql-errors.js";
import { onlyValue } from "../../transactions/open-transaction.js";
import { busyError } from "../inbox-errors.js";
import { sameOrNot } from "../rows/remembered-ids.js";
import { asideSettlement, holdNames } from "../settle-plan.js";
import { adopt, handledValues, insertHandled } from "./adopt.js";
import { forgottenIn } from "./forgotten.js";
import { failing, type MysqlAccess, type Transaction } from "./mysql-access.js";
import { settle, sharedLock } from "./mysql-box.js";
import { BoxTransaction, requireFits } from "./mysql-rows.js";
import { nowSql, type Tables } from "./names.js";
import { indexed } from "./schema.js";
import type { Server } from "./server.js";

/** `Store.inbox` in MySQL. */
export function mysqlInbox<Tx>(access: MysqlAccess, library: TransactionLibrary<Tx>): Inbox<Tx> {
  const { t } = access;
  const forgotten = forgottenIn(access);

  return {
    async remember(tx, arrival, options) {
      const execute = library.executor(tx);
      const box = await access.box(inboxOf(arrival.consumer));
      const { id, hash, message } = arrival;
      try {
        await untilTimeout(access, library, tx, arrival, options, () =>
          execute(insertHandled(t, 1, true), handledValues(box, arrival)),
        );
      } catch (error) {
        if (mysqlNumber(error) !== duplicateEntry) throw error;
        if (hash === undefined) return "duplicate";
        const known = await execute(
          `SELECT hash FROM ${t.handled} FORCE INDEX (PRIMARY) WHERE box = ? AND remembered = ? ${sharedLock(access.server)}`,
          [box, indexed(id)],
        );
        const found = onlyValue(known.rows);
        return sameOrNot(found == null ? undefined : String(found), hash);
      }
      if (!(await forgotten.isOld(box, message, options.retentionMs))) return "new";
      await execute(`DELETE FROM ${t.handled} WHERE box = ? AND remembered = ?`, [box, indexed(id)]);
      return "too-old";
    },

    async keep(arrivals, { retentionMs, lockTimeoutMs }, signal) {
      const [first] = arrivals;
      if (first === undefined) return [];
      const work = async (transaction: Transaction, box: number) => {
        const found = await adopt(transaction, t, box, arrivals, forgotten, retentionMs);
        const fresh = arrivals.filter((_, index) => found[index] === "new").map(({ message }) => message);
        if (fresh.length > 0) {
          const change = new BoxTransaction(transaction, t, box, 0);
          await change.register();
          await change.append(fresh);
        }
        return found;
      };
      return patiently(access, arrivals, lockTimeoutMs, "could not store messages of an inbox", work, signal);
    },

    async setAside(arrival, aside, { retentionMs, lockTimeoutMs }, signal) {
      const work = async (transaction: Transaction, box: number) => {
        // First the statement that may have to wait, then the lane's lock, which others wait for.
        const [found] = await adopt(transaction, t, box, [arrival], forgotten, retentionMs);
        const anyway = aside.to === "parked" && aside.anyway === true;
        if (found === "new" || anyway) await placeAside(transaction, t, box, arrival, aside);
        return found as Remembered;
      };
      return patiently(access, [arrival], lockTimeoutMs, "could not set aside a message of an inbox", work, signal);
    },

    async handled(tx, arrival, row, epoch) {
      const execute = library.executor(tx);
      const box = await access.box(inboxOf(arrival.consumer));
      const fence = await execute(
        `SELECT epoch FROM ${t.lane} FORCE INDEX (PRIMARY) WHERE box = ? AND lane = ? ${sharedLock(access.server)}`,
        [box, row.lane],
      );
      if (Number(onlyValue(fence.rows)) !== epoch) return false;
      // The relay ends the hold of a waiting row when it settles it.
      const [table, turn] = row.waiting ? [t.waiting, "AND turn = ?"] : [t.pending, ""];
      const removed = await execute(
        `DELETE FROM ${table} WHERE box = ? AND lane = ? AND position = ? AND CAST(id AS BINARY) = ? ${turn}`,
        [box, row.lane, row.position, Buffer.from(row.message.id), ...(row.waiting ? [row.turn ?? 0] : [])],
      );
      if (removed.rowCount !== 1) return false;
      await execute(`UPDATE ${t.handled} SET handled_at = ${nowSql} WHERE box = ? AND remembered = ?`, [
        box,
        indexed(arrival.id),
      ]);
      return true;
    },
  };
}

/** Runs a transaction of the inbox itself, and gives up when a lock is not free in time. */
async function patiently<R>(
  access: MysqlAccess,
  arrivals: readonly Arrival[],
  lockTimeoutMs: number,
  what: string,
  work: (transaction: Transaction, box: number) => Promise<R>,
  signal: AbortSignal | undefined,
): Promise<R> {
  const [arrival] = arrivals as readonly [Arrival];
  await access.ready();
  requireStorable(arrivals, access.server);
  const tooLong = AbortSignal.timeout(Math.max(1, Math.ceil(lockTimeoutMs)));
  const either = signal === undefined ? tooLong : AbortSignal.any([signal, tooLong]);
  const box = await access.box(inboxOf(arrival.consumer));
  try {
    return await failing(what, access.database, () => access.transact((transaction) => work(transaction, box), either));
  } catch (error) {
    if (tooLong.aborted && !signal?.aborted && error === either.reason) throw busyError(arrival, lockTimeoutMs, error);
    throw error;
  }
}

/** A message that is too large for the server will not get smaller: it is parked. */
function requireStorable(arrivals: readonly Arrival[], server: Server): void {
  for (const { consumer, message } of arrivals) {
    try {
      requireFits([message], server);
    } catch (cause) {
      const text = `the inbox of ${consumer} cannot store message ${message.id}: ${(cause as Error).message}`;
      throw new PermanentError(text, { code: "message-invalid", cause });
    }
  }
}

/** Appends a message and settles it at once. */
async function placeAside(
  transaction: Transaction,
  t: Tables,
  box: number,
  arrival: Arrival,
  aside: Aside,
): Promise<void> {
  const { deliverAt: _, scheduleKey: __, ...message } = arrival.message;
  const lane = laneOf(message.key ?? message.id);
  await transaction.run(`SELECT epoch FROM ${t.lane} FORCE INDEX (PRIMARY) WHERE box = ? AND lane = ? FOR UPDATE`, [
    box,
    lane,
  ]);
  const change = new BoxTransaction(transaction, t, box, 0);
  await change.register();
  await change.append([message]);
  const { rows } = await transaction.run("SELECT LAST_INSERT_ID() AS position");
  const position = Number(rows[0]?.position);
  const row: Row = { lane, position, message, attempts: 0, crashes: 0, waiting: false, held: false };
  const holds = await change.holds(new Map([[lane, new Set(holdNames(message))]]), []);
  await settle(transaction, t, box, [asideSettlement(row, aside, holds)]);
}

/**
 * Runs a statement in the user's transaction that may have to wait for another transaction. When that takes too long,
 * it is ended from another connection: a session setting would have to be restored, with two more statements per
 * message.
 */
async function untilTimeout<Tx, R>(
  access: MysqlAccess,
  library: TransactionLibrary<Tx>,
  tx: Tx,
  arrival: Arrival,
  { lockTimeoutMs }: RememberOptions,
  statement: () => Promise<R>,
): Promise<R> {
  const session = library.session?.(tx);
  // Asked before: while the statement waits, its connection answers nothing.
  const id = session?.id instanceof Promise ? await session.id : session?.id;
  let killed: Promise<void> | undefined;
  const timer = setTimeout(
    () => {
      if (id !== undefined) killed = access.connections.reads.kill(id.pid, "QUERY");
    },
    Math.max(1, Math.ceil(lockTimeoutMs)),
  );
  try {
    const result = await statement();
    if (killed === undefined) return result;
    await killed;
    throw busyError(arrival, lockTimeoutMs);
  } catch (error) {
    if (killed === undefined || error instanceof PostboxError) throw error;
    await killed;
    throw interrupted.has(mysqlNumber(error)) ? busyError(arrival, lockTimeoutMs, error) : error;
  } finally {
    clearTimeout(timer);
  }
}
