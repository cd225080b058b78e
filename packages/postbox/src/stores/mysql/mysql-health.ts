import type { Health, HealthOptions } from "../../health.js";
import { laneCount } from "../../internal/lane.js";
import { reasonOf } from "../../internal/reason-of.js";
import { isUnavailable } from "../../internal/unavailable.js";
import { isMysqlRefused, mysqlNumber } from "../../transactions/mysql-errors.js";
import { type BoxSight, boxProblems, countedBeyond, healthOf, unroutablePrefix } from "../box-problems.js";
import { checkHealth } from "../health-options.js";
import { clockOf, type MysqlAccess } from "./mysql-access.js";
import { ownersFrom, ownersSql } from "./mysql-box.js";
import { msOf, nowSql, type Tables } from "./names.js";
import type { Session } from "./own-connections.js";

/**
 * How many waiting rows are searched for one that fails. A waiting row that has not failed itself waits behind a failed
 * row of its key.
 */
const searched = 1000;

/** `Store.health`: bounded reads of one snapshot, which wait for no lock. */
export function mysqlHealth(access: MysqlAccess): (options?: HealthOptions) => Promise<Health> {
  return async (options) => {
    const limits = checkHealth(options);
    const tooLong = AbortSignal.timeout(limits.timeoutMs);
    try {
      const fault = await access.connections.reads.use((session) => access.schemaFault(session), tooLong);
      if (fault !== undefined) return healthOf([{ severity: "error", ...fault }]);
      const names = limits.box === undefined ? await access.boxNames() : [limits.box];
      const sights = new Map<string, BoxSight>();
      for (const name of names) {
        const box = await access.used(name);
        sights.set(name, await access.look((session) => sightOf(session, access.t, box, limits.parked), tooLong));
      }
      return healthOf([...sights].flatMap(([name, sight]) => boxProblems(name, sight, limits)));
    } catch (error) {
      if (tooLong.aborted) {
        const text = `the checks of health took longer than ${limits.timeoutMs} ms; check the load of the database`;
        return healthOf([{ code: "unreachable", severity: "error", timedOut: true, text }]);
      }
      if (isStoreRefused(error)) return healthOf([{ code: "store-refused", severity: "error", text: reasonOf(error) }]);
      if (isUnavailable(error)) {
        return healthOf([{ code: "unreachable", severity: "error", timedOut: false, text: reasonOf(error) }]);
      }
      if (mysqlNumber(error) === undefined) throw error;
      return healthOf([{ code: "unreadable", severity: "error", text: reasonOf(error) }]);
    }
  };
}

function isStoreRefused(error: unknown): boolean {
  return isMysqlRefused(error) || (error as { readonly code?: unknown }).code === "store-refused";
}

async function sightOf(session: Session, t: Tables, box: number, parkedLimit: number): Promise<BoxSight> {
  const now = await clockOf(session);
  const first = async (sql: string) => (await session.run(sql)).rows[0];
  const pending = await oldestPending(session, t, box);
  const due = await first(
    `SELECT m.id, m.topic, m.lane, h.due_at AS since FROM ${t.hold} h FORCE INDEX (box_due)
       STRAIGHT_JOIN ${t.waiting} m FORCE INDEX (hold) ON m.box = h.box AND m.lane = h.lane AND m.hold = h.name
     WHERE h.box = ${box} AND h.due_at <= ${nowSql} ORDER BY h.due_at LIMIT 1`,
  );
  const retriedSql = (condition: string) =>
    `SELECT picked.* FROM (
       SELECT m.id, m.topic, m.lane, m.hold, m.created_at AS since, m.attempts, m.last_error AS error
       FROM ${t.waiting} m FORCE INDEX (by_position) WHERE m.box = ${box} ORDER BY m.position LIMIT ${searched}) picked
     JOIN ${t.hold} h FORCE INDEX (PRIMARY) ON h.box = ${box} AND h.lane = picked.lane AND h.name = picked.hold
     WHERE ${condition} AND h.due_at IS NOT NULL ORDER BY picked.since LIMIT 1`;
  const retried = await first(retriedSql("picked.error IS NOT NULL"));
  const unroutable = await first(retriedSql(`LEFT(picked.error, ${unroutablePrefix.length}) = '${unroutablePrefix}'`));
  const late = await first(
    `SELECT id, topic, lane, due_at AS since FROM ${t.scheduled} FORCE INDEX (PRIMARY)
     WHERE box = ${box} AND due_at <= ${nowSql} ORDER BY due_at LIMIT 1`,
  );
  const parked = await first(
    `SELECT COUNT(*) AS count FROM (SELECT 1 FROM ${t.parked} FORCE INDEX (by_position)
     WHERE box = ${box} LIMIT ${parkedLimit + countedBeyond + 1}) found`,
  );
  const heldKeys = await session.run(
    `SELECT name FROM ${t.hold} FORCE INDEX (box_due) WHERE box = ${box} AND due_at IS NULL LIMIT ${countedBeyond + 1}`,
  );
  const [state, members, lanes] = await session.runAll([
    [`SELECT paused_at FROM ${t.box} WHERE number = ${box}`],
    ...ownersSql(t, box),
  ]);
  const owners = ownersFrom(members, lanes);
  const unowned = owners.unowned();
  const isPendingFirst = pending !== undefined && msOf(pending.since) <= (due === undefined ? now : msOf(due.since));
  const unsent = isPendingFirst ? pending : due;
  const pausedAt = state?.rows[0]?.paused_at;
  return {
    ...(unsent && {
      unsent: { ...named(unsent), ageMs: now - msOf(unsent.since), status: isPendingFirst ? "pending" : "waiting" },
    }),
    ...(retried && { retried: retriedOf(retried, now) }),
    ...(unroutable && { unroutable: retriedOf(unroutable, now) }),
    ...(late && { late: { ...named(late), lateMs: now - msOf(late.since) } }),
    unowned: unowned.size,
    unsentUnowned: unowned.size > 0 && (await hasUnsentIn(session, t, box, unowned, late)),
    relays: owners.living(),
    ...(pausedAt != null && { pausedAt: new Date(msOf(pausedAt)), pausedForMs: now - msOf(pausedAt) }),
    parked: Number(parked?.count),
    heldForGood: heldKeys.rows.length,
    heldKeys: heldKeys.rows.map(({ name }) => String(name)),
  };
}

type Found = Readonly<Record<string, unknown>>;

/** The first row of each lane, and of these the oldest: an index of all lanes would serve nothing else. */
async function oldestPending(session: Session, t: Tables, box: number): Promise<Found | undefined> {
  const branches = Array.from(
    { length: laneCount },
    (_, lane) => `(SELECT id, topic, lane, created_at AS since, position FROM ${t.pending} FORCE INDEX (PRIMARY)
      WHERE box = ${box} AND lane = ${lane} ORDER BY position LIMIT 1)`,
  );
  const { rows } = await session.run(`SELECT * FROM (${branches.join(" UNION ALL ")}) found ORDER BY position LIMIT 1`);
  return rows[0];
}

function named({ id, topic }: Found) {
  return { id: String(id), topic: String(topic) };
}

function retriedOf(found: Found, now: number) {
  const { since, attempts, error } = found;
  return { ...named(found), ageMs: now - msOf(since), attempts: Number(attempts), lastError: String(error) };
}

async function hasUnsentIn(
  session: Session,
  t: Tables,
  box: number,
  lanes: ReadonlySet<number>,
  late: Found | undefined,
): Promise<boolean> {
  if (late !== undefined && (lanes.has(Number(late.lane)) || lanes.size === laneCount)) return true;
  const each = [...lanes].join(", ");
  const { rows } = await session.run(
    `(SELECT 1 FROM ${t.pending} FORCE INDEX (PRIMARY) WHERE box = ${box} AND lane IN (${each}) LIMIT 1) UNION ALL
     (SELECT 1 FROM ${t.hold} h FORCE INDEX (due) WHERE box = ${box} AND lane IN (${each}) AND due_at <= ${nowSql}
        AND EXISTS (SELECT 1 FROM ${t.waiting} w FORCE INDEX (hold)
          WHERE w.box = h.box AND w.lane = h.lane AND w.hold = h.name) LIMIT 1)`,
  );
  return rows.length > 0;
}
