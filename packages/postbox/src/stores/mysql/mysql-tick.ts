import { randomUUID } from "node:crypto";
import type { ScheduleState, TickClaim, TransactionExecutor } from "../../store.js";
import { lockSql } from "./key-locks.js";
import type { MysqlAccess } from "./mysql-access.js";
import { msOf, nowSql, storedTime } from "./names.js";
import { indexed } from "./schema.js";

/** `Store.tick` in MySQL. */
export async function tick(
  access: MysqlAccess,
  execute: TransactionExecutor,
  schedule: string,
  claim: TickClaim | undefined,
): Promise<ScheduleState> {
  const { t } = access;
  const name = indexed(schedule);
  await access.ready();
  // Whoever claims or begins the same schedule waits here.
  await execute(lockSql(t, [`tick ${schedule}`]), []);
  if (!(await exists(access, execute, name))) {
    // In whole milliseconds, so that a program compares exactly what it has read.
    await execute(`INSERT INTO ${t.schedule} (name, id, last_tick) VALUES (?, ?, ${nowSql} DIV 1000 * 1000)`, [
      name,
      Buffer.from(randomUUID()),
    ]);
  }
  const read = async () => {
    const { rows } = await execute(
      `SELECT id, last_tick, ${nowSql} AS now FROM ${t.schedule} WHERE name = ? FOR UPDATE`,
      [name],
    );
    const [id, lastTick, now] = Object.values(rows[0] ?? {});
    return { id: String(id), lastTick: msOf(lastTick), now: msOf(now) };
  };
  const found = await read();
  const claimed =
    claim !== undefined && claim.tick > claim.after && claim.tick <= found.now && found.lastTick === claim.after;
  if (!claimed) return { ...found, claimed };
  await execute(`UPDATE ${t.schedule} SET last_tick = ${storedTime(claim.tick)} WHERE name = ?`, [name]);
  return { ...found, lastTick: claim.tick, claimed };
}

/**
 * Whether a schedule exists: committed, or begun by this transaction. To look for a missing row with a lock would lock
 * the gap where others insert. A plain read at REPEATABLE READ does not show what was committed since its snapshot, so
 * a connection of the store reads that.
 */
async function exists(access: MysqlAccess, execute: TransactionExecutor, name: Buffer): Promise<boolean> {
  const find = `SELECT 1 FROM ${access.t.schedule} WHERE name = ?`;
  if ((await access.read((session) => session.run(find, [name]))).rows.length > 0) return true;
  return (await execute(find, [name])).rows.length > 0;
}
