import type { ClientBase } from "pg";
import type { Status } from "../../admin.js";
import { laneOf } from "../../internal/lane.js";
import type { CheckedChange, CheckedOperator } from "../admin-options.js";
import type { ChangedStep } from "../change-batches.js";
import type { BoundedStep } from "../create-admin.js";
import type { AdminConnection } from "./admin-connection.js";
import {
  advanceKeysSql,
  discardSql,
  disownSql,
  endHoldsSql,
  freeKeysSql,
  lockLanesSql,
  releaseKeySql,
  replayed,
  replaySql,
  retryPendingSql,
  retrySql,
  retryWaitingSql,
  Statement,
  selectSql,
  takeTokenSql,
  tokenReachSql,
} from "./admin-sql.js";
import type { BoxTables } from "./names.js";

/** Each step is one transaction. */
type InTransaction = AdminConnection["inTransaction"];

/**
 * The position that a replay with this token has reached, if it has begun. It continues there and replays nothing
 * twice.
 */
async function replayedUpTo(client: ClientBase, t: BoxTables, confirm: string | undefined): Promise<number> {
  if (confirm === undefined) return 0;
  await client.query(takeTokenSql, [confirm]);
  const { rows } = await client.query(tokenReachSql(t), [confirm]);
  return Number(rows[0].last ?? 0);
}

/** Appends the rows of one step of a replay again. */
export async function replayStep(
  inTransaction: InTransaction,
  t: BoxTables,
  { status, filter, confirm, ...change }: CheckedChange,
  step: BoundedStep,
): Promise<ChangedStep> {
  return inTransaction(async (client) => {
    const statement = new Statement();
    const after = Math.max(step.after, await replayedUpTo(client, t, confirm));
    const picked = selectSql(statement, t, {
      status,
      filter,
      reach: { ...reachOf(step), after },
      list: replayed,
      once: true,
    });
    const text = replaySql(t, picked, statement.params.length + 1);
    const { rows } = await client.query(text, [...statement.params, ...auditOf({ ...change, confirm })]);
    const count = Number(rows[0].count);
    return { found: count, count, last: Number(rows[0].last) };
  });
}

/** Retries or discards the rows of one step. */
export async function changeStep(
  inTransaction: InTransaction,
  t: BoxTables,
  change: CheckedChange,
  step: BoundedStep,
): Promise<ChangedStep> {
  const { action, status, filter } = change;
  const mayEndHolds = status === "parked" || (status === "waiting" && action === "discard");
  const [changed, lanes, keys] = await inTransaction(async (client) => {
    const statement = new Statement();
    const text = selectSql(statement, t, {
      status,
      filter,
      reach: reachOf(step),
      list: "m.lane, m.position, m.hold_key",
    });
    const { rows } = await client.query(text, statement.params);
    const column = (name: string) => rows.map((row) => row[name]);
    const [lanes, positions, keys] = [column("lane"), column("position"), column("hold_key")];
    await client.query(lockLanesSql(t), [[...new Set(lanes)]]);
    const changing = action === "retry" ? retryFrom(t, status) : discardSql(t, status as Exclude<Status, "done">);
    const changed = await client.query(changing, [lanes, positions, ...auditOf(change)]);
    if (action === "retry" && status === "pending") await client.query(disownSql(t), [[...new Set(lanes)]]);
    if (status === "parked") await client.query(freeKeysSql(t), [lanes, keys]);
    else if (mayEndHolds) await client.query(advanceKeysSql(t), [lanes, keys, positions]);
    if (mayEndHolds) await client.query(endHoldsSql(t), [lanes, keys]);
    const done = { found: rows.length, count: Number(changed.rows[0].count), last: Number(positions.at(-1) ?? 0) };
    return [done, lanes, keys] as const;
  });
  if (mayEndHolds) await endHolds(inTransaction, t, lanes, keys);
  return changed;
}

/**
 * After a change has committed, ends the holds of these keys that no row waits under. A settle that waited for the
 * change saw the rows that the change removed. It took its own row for one of several and left the hold.
 *
 * If the process crashes before this step, such a hold remains. It delays the next message of its key by one read and
 * then ends.
 */
async function endHolds(
  inTransaction: InTransaction,
  t: BoxTables,
  lanes: readonly unknown[],
  keys: readonly unknown[],
): Promise<void> {
  if (lanes.length === 0) return;
  await inTransaction(async (client) => {
    await client.query(lockLanesSql(t), [[...new Set(lanes)]]);
    await client.query(endHoldsSql(t), [lanes, keys]);
  });
}

/** Releases a held key. Returns false if it is not held. */
export async function releaseKey(
  inTransaction: InTransaction,
  t: BoxTables,
  key: string,
  { by, reason }: Pick<CheckedOperator, "by" | "reason">,
): Promise<boolean> {
  const lane = laneOf(key);
  const released = await inTransaction(async (client) => {
    await client.query(lockLanesSql(t), [[lane]]);
    const { rows } = await client.query(releaseKeySql(t), [lane, key, by, reason ?? null]);
    await client.query(endHoldsSql(t), [[lane], [key]]);
    return Number(rows[0].count) > 0;
  });
  if (released) await endHolds(inTransaction, t, [lane], [key]);
  return released;
}

/** The parameters that bound a step. */
function reachOf({ after, upTo, limit, until }: BoundedStep) {
  return until === Number.MAX_SAFE_INTEGER ? { after, upTo, limit } : { after, upTo, limit, until };
}

/** The parameters for the audit. */
function auditOf({ by, reason, selection, confirm }: Pick<CheckedChange, "by" | "reason" | "selection" | "confirm">) {
  return [by, reason ?? null, JSON.stringify(selection), confirm ?? null];
}

function retryFrom(t: BoxTables, status: Status): string {
  if (status === "waiting") return retryWaitingSql(t);
  return status === "pending" ? retryPendingSql(t) : retrySql(t);
}
