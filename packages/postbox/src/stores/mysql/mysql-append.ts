import { laneOf } from "../../internal/lane.js";
import type { Message } from "../../message/message.js";
import type { AppendOptions, TransactionExecutor } from "../../store.js";
import { dueTimeOf } from "../rows/scheduled-rows.js";
import { lockSql } from "./key-locks.js";
import type { MysqlAccess } from "./mysql-access.js";
import {
  bytesOfMessage,
  chunks,
  insertPending,
  messageColumns,
  messageMarks,
  registerSql,
  requireFits,
  valuesOf,
} from "./mysql-rows.js";
import { nowSql, storedTime } from "./names.js";

/*
 * What is written in the user's transaction, whatever its isolation level is. At REPEATABLE READ, a statement that
 * looks for a row and does not find it locks the gap where others insert. So rows are looked for on a connection of the
 * store, and then named by their primary keys.
 */

/** `Store.append` in MySQL. */
export async function append(
  access: MysqlAccess,
  execute: TransactionExecutor,
  name: string,
  messages: readonly Message[],
  { strictKeyOrder = false }: AppendOptions,
): Promise<void> {
  if (messages.length === 0) return;
  const { t } = access;
  // On a connection of the store: the user's transaction stays as it is.
  await access.ready();
  requireFits(messages, access.server);
  const box = await access.box(name);
  const now = messages.some(({ deliverAt }) => deliverAt !== undefined) ? await access.now() : 0;
  const isDue = (message: Message) => {
    const dueAt = dueTimeOf(message);
    return dueAt === undefined || (dueAt <= now && message.scheduleKey === undefined);
  };
  const pending = messages.filter(isDue);
  const scheduled = lastOfEach(messages.filter((message) => !isDue(message)));
  const keyed = scheduled.filter(({ scheduleKey }) => scheduleKey !== undefined);
  const locks = [
    ...(strictKeyOrder
      ? pending.flatMap(({ key }) => (key === undefined ? [] : [`key ${box} ${laneOf(key)} ${key}`]))
      : []),
    ...keyed.map((message) => lockOf(box, scheduleNameOf(message.type, message.scheduleKey as string))),
  ];
  // All at once and in one order, so that single calls never deadlock; and before a position is drawn.
  if (locks.length > 0) await execute(lockSql(t, locks), []);
  const names = keyed.map((message) => scheduleNameOf(message.type, message.scheduleKey as string));
  await removeScheduled(access, execute, box, names);
  if (pending.length > 0) await execute(registerSql(t), []);
  for (const part of chunks(pending, bytesOfMessage)) await execute(...insertPending(t, box, part));
  for (const part of chunks(scheduled, bytesOfMessage)) {
    const rows = part.map(() => `(${box}, ?, ${messageMarks}, ${nowSql}, ?, ?, ?)`);
    await execute(
      `INSERT INTO ${t.scheduled} (box, lane, ${messageColumns}, created_at, due_at, schedule_key, schedule_name)
       VALUES ${rows.join(", ")}`,
      part.flatMap((message) => [
        ...valuesOf(message),
        storedTime(dueTimeOf(message) as number),
        message.scheduleKey === undefined ? null : Buffer.from(message.scheduleKey),
        message.scheduleKey === undefined ? null : Buffer.from(scheduleNameOf(message.type, message.scheduleKey)),
      ]),
    );
  }
}

/** `Store.cancel` in MySQL. */
export async function cancel(
  access: MysqlAccess,
  execute: TransactionExecutor,
  name: string,
  type: string,
  scheduleKey: string,
): Promise<boolean> {
  await access.ready();
  const box = await access.box(name);
  const scheduleName = scheduleNameOf(type, scheduleKey);
  // A message that another transaction has scheduled and not committed is not waited for.
  if ((await visible(access, execute, box, [scheduleName])).length === 0) return false;
  await execute(lockSql(access.t, [lockOf(box, scheduleName)]), []);
  return (await removeScheduled(access, execute, box, [scheduleName])) > 0;
}

/** No type contains NUL. */
function scheduleNameOf(type: string, scheduleKey: string): string {
  return `${type}\0${scheduleKey}`;
}

function lockOf(box: number, scheduleName: string): string {
  return `schedule ${box} ${scheduleName}`;
}

/** Of several messages with the same schedule key, the last one counts. */
function lastOfEach(messages: readonly Message[]): readonly Message[] {
  const last = new Map<string, Message>();
  for (const message of messages) {
    if (message.scheduleKey !== undefined) last.set(scheduleNameOf(message.type, message.scheduleKey), message);
  }
  return messages.filter(
    (message) =>
      message.scheduleKey === undefined || last.get(scheduleNameOf(message.type, message.scheduleKey)) === message,
  );
}

/** Removes the scheduled messages with these names, whose locks are held. Waits for a relay that is appending one. */
async function removeScheduled(
  access: MysqlAccess,
  execute: TransactionExecutor,
  box: number,
  names: readonly string[],
): Promise<number> {
  const { t } = access;
  let removed = 0;
  for (const part of chunks(names, (name) => 2 * name.length)) {
    const rows = await visible(access, execute, box, part);
    if (rows.length === 0) continue;
    const places = rows.map(({ dueAt, position }) => `(due_at = ${dueAt} AND position = ${position})`);
    const { rowCount } = await execute(
      `DELETE FROM ${t.scheduled} USING ${t.scheduled} FORCE INDEX (PRIMARY)
       WHERE box = ${box} AND (${places.join(" OR ")})`,
      [],
    );
    removed += rowCount;
  }
  return removed;
}

/**
 * Where scheduled messages with these names are: those that are committed, which a relay may be appending, and those
 * that this transaction has scheduled itself. A plain read at REPEATABLE READ does not show what was committed since
 * its snapshot, so a connection of the store reads that.
 */
async function visible(
  access: MysqlAccess,
  execute: TransactionExecutor,
  box: number,
  names: readonly string[],
): Promise<readonly { readonly dueAt: string; readonly position: string }[]> {
  const { t } = access;
  const find = `SELECT due_at, position FROM ${t.scheduled} FORCE INDEX (schedule_name)
    WHERE box = ? AND schedule_name IN (${names.map(() => "?").join(", ")})`;
  const params = [box, ...names.map((name) => Buffer.from(name))];
  const own = await execute(find, params);
  const committed = await access.read((session) => session.run(find, params));
  const places = new Map<string, string>();
  for (const row of [...own.rows, ...committed.rows]) {
    const [dueAt, position] = Object.values(row);
    places.set(String(position), String(dueAt));
  }
  return [...places].map(([position, dueAt]) => ({ dueAt, position }));
}
