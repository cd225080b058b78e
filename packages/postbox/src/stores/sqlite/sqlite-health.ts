import type { Health, HealthOptions } from "../../health.js";
import { laneCount } from "../../internal/lane.js";
import { reasonOf } from "../../internal/reason-of.js";
import { isUnavailable } from "../../internal/unavailable.js";
import { type BoxSight, boxProblems, countedBeyond, healthOf, unroutablePrefix } from "../box-problems.js";
import { checkHealth } from "../health-options.js";
import { schemaFault } from "./schema.js";
import type { SqliteAccess } from "./sqlite-access.js";
import { isRefused, isUnreachable } from "./sqlite-database.js";
import { ownersOf } from "./sqlite-rows.js";

/**
 * How many waiting rows are searched for one that fails. A waiting row that has not failed itself waits behind a failed
 * row of its key.
 */
const searched = 1000;

/** `Store.health`: bounded reads of the last commit, so it waits for nobody. */
export function sqliteHealth(access: SqliteAccess): (options?: HealthOptions) => Promise<Health> {
  return async (options) => {
    const limits = checkHealth(options);
    try {
      const fault = schemaFault(access.reader, access.file);
      if (fault !== undefined) return healthOf([{ severity: "error", ...fault }]);
      return access.read(() => {
        const names = limits.box === undefined ? access.boxNames() : [limits.box];
        return healthOf(names.flatMap((name) => boxProblems(name, sightOf(access, name, limits.parked), limits)));
      });
    } catch (error) {
      if (isRefused(error)) return healthOf([{ code: "store-refused", severity: "error", text: reasonOf(error) }]);
      if (!isUnavailable(error) && !isUnreachable(error)) throw error;
      return healthOf([{ code: "unreachable", severity: "error", timedOut: false, text: reasonOf(error) }]);
    }
  };
}

interface RetriedRow extends Named {
  readonly since: number;
  readonly attempts: number;
  readonly error: string;
}

interface Named {
  readonly id: string;
  readonly topic: string;
  readonly lane: number;
}

function sightOf(access: SqliteAccess, name: string, parkedLimit: number): BoxSight {
  const { reader } = access;
  const [box, now] = [access.usedBox(name), access.now()];
  const pending = reader.first<Named & { readonly since: number }>(
    `SELECT id, topic, lane, created_at AS since FROM postbox_message INDEXED BY postbox_status
     WHERE box = ? AND status = 'pending' ORDER BY position LIMIT 1`,
    box,
  );
  const due = reader.first<Named & { readonly since: number }>(
    `SELECT m.id, m.topic, m.lane, h.due_at AS since FROM postbox_hold h INDEXED BY postbox_box_hold_due
       JOIN postbox_message m INDEXED BY postbox_waiting
         ON m.box = h.box AND m.lane = h.lane AND m.status = 'waiting' AND m.hold = h.name
     WHERE h.box = ? AND h.due_at <= ? ORDER BY h.due_at LIMIT 1`,
    box,
    now,
  );
  const retriedSql = (condition: string) =>
    `SELECT picked.id, picked.topic, picked.lane, picked.created_at AS since, picked.attempts, picked.last_error AS error
     FROM (SELECT * FROM postbox_message INDEXED BY postbox_status
       WHERE box = ? AND status = 'waiting' ORDER BY position LIMIT ${searched}) picked
       JOIN postbox_hold h ON h.box = picked.box AND h.lane = picked.lane AND h.name = picked.hold
     WHERE ${condition} AND h.due_at IS NOT NULL ORDER BY picked.created_at LIMIT 1`;
  const retried = reader.first<RetriedRow>(retriedSql("picked.last_error IS NOT NULL"), box);
  const startsUnroutable = `substr(picked.last_error, 1, ${unroutablePrefix.length}) = '${unroutablePrefix}'`;
  const unroutable = reader.first<RetriedRow>(retriedSql(startsUnroutable), box);
  const late = reader.first<Named & { readonly since: number }>(
    `SELECT id, topic, lane, due_at AS since FROM postbox_message INDEXED BY postbox_due
     WHERE box = ? AND status = 'scheduled' AND due_at <= ? ORDER BY due_at LIMIT 1`,
    box,
    now,
  );
  const parked = reader.first<{ readonly count: number }>(
    `SELECT count(*) AS count FROM (SELECT 1 FROM postbox_message INDEXED BY postbox_status
     WHERE box = ? AND status = 'parked' LIMIT ?)`,
    box,
    parkedLimit + countedBeyond + 1,
  );
  const heldKeys = reader.all<{ readonly name: string }>(
    `SELECT name FROM postbox_hold INDEXED BY postbox_box_hold_due WHERE box = ? AND due_at IS NULL LIMIT ?`,
    box,
    countedBeyond + 1,
  );
  const owners = ownersOf(reader, box, now);
  const unowned = owners.unowned();
  const isPendingFirst = pending !== undefined && Number(pending.since) <= Number(due?.since ?? now);
  const unsent = isPendingFirst ? pending : due;
  const pausedAt = access.pausedAt(box);
  return {
    ...(unsent && {
      unsent: {
        id: unsent.id,
        topic: unsent.topic,
        ageMs: now - Number(unsent.since),
        status: isPendingFirst ? "pending" : "waiting",
      },
    }),
    ...(retried && { retried: retriedOf(retried, now) }),
    ...(unroutable && { unroutable: retriedOf(unroutable, now) }),
    ...(late && { late: { id: late.id, topic: late.topic, lateMs: now - Number(late.since) } }),
    unowned: unowned.size,
    unsentUnowned: unowned.size > 0 && hasUnsentIn(access, box, unowned, late),
    relays: owners.living(),
    ...(pausedAt !== undefined && { pausedAt: new Date(Number(pausedAt)), pausedForMs: now - Number(pausedAt) }),
    parked: Number(parked?.count),
    heldForGood: heldKeys.length,
    heldKeys: heldKeys.map((held) => held.name),
  };
}

function retriedOf({ id, topic, since, attempts, error }: RetriedRow, now: number) {
  return { id, topic, ageMs: now - Number(since), attempts: Number(attempts), lastError: error };
}

function hasUnsentIn(access: SqliteAccess, box: number, lanes: ReadonlySet<number>, late: Named | undefined): boolean {
  if (late !== undefined && (lanes.has(Number(late.lane)) || lanes.size === laneCount)) return true;
  const pending = `SELECT 1 FROM postbox_message INDEXED BY postbox_pending
    WHERE box = ? AND lane = ? AND status = 'pending' LIMIT 1`;
  const due = `SELECT 1 FROM postbox_hold h INDEXED BY postbox_hold_due WHERE box = ? AND lane = ? AND due_at <= ?
    AND EXISTS (SELECT 1 FROM postbox_message INDEXED BY postbox_waiting
      WHERE box = h.box AND lane = h.lane AND status = 'waiting' AND hold = h.name) LIMIT 1`;
  return [...lanes].some(
    (lane) =>
      access.reader.first(pending, box, lane) !== undefined ||
      access.reader.first(due, box, lane, access.now()) !== undefined,
  );
}
