import type { ClientBase } from "pg";
import type { Admin, AuditEntry, BoxStats, Failure, Status, StoredMessage, StoredMessageDetails } from "../../admin.js";
import { PostboxError } from "../../errors.js";
import { laneOf } from "../../internal/lane.js";
import { reasonOf } from "../../internal/reason-of.js";
import { runtimeWith } from "../../internal/runtime.js";
import type { TransactionLibrary } from "../../store.js";
import type { CheckedChange, CheckedSelection } from "../admin-options.js";
import type { ChangedStep } from "../change-batches.js";
import { type BoundedStep, createAdmin, type Reach } from "../create-admin.js";
import { type MessageRecord, messageFrom } from "../message-record.js";
import {
  advanceKeysSql,
  auditSql,
  details,
  discardSql,
  disownSql,
  endHoldsSql,
  freeKeysSql,
  lockLanesSql,
  pauseSql,
  releaseKeySql,
  replayed,
  replaySql,
  retryPendingSql,
  retrySql,
  retryWaitingSql,
  Statement,
  selectSql,
  statsSql,
  summary,
  takeTokenSql,
  tokenReachSql,
} from "./admin-sql.js";
import type { BoxFinder } from "./box-numbers.js";
import { planByKey } from "./by-key.js";
import type { BoxTables } from "./names.js";
import type { StatementRunner } from "./run-statement.js";
import { type SchemaCheck, schemaError } from "./schema-check.js";

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

/** A row as the driver returns it. */
type Row = Readonly<Record<string, unknown>>;

/** `Store.admin` in PostgreSQL. Each read is one statement; each step of a change is one transaction. */
export function postgresAdmin(
  schema: string,
  boxes: BoxFinder,
  run: StatementRunner,
  onPool: TransactionLibrary<ClientBase>,
  checkSchema: SchemaCheck,
): Admin {
  const tablesOf = (box: string): Promise<BoxTables> => guarded("find the box", () => boxes.existing(box));

  async function guarded<R>(what: string, work: () => Promise<R>): Promise<R> {
    try {
      await checkSchema(run);
      return await work();
    } catch (thrown) {
      const error = schemaError(thrown, schema);
      if (error instanceof PostboxError) throw error;
      throw new PostboxError("store-failed", `could not ${what} in Postgres: ${reasonOf(error)}`, { cause: error });
    }
  }

  const inTransaction = <R>(work: (client: ClientBase) => Promise<R>): Promise<R> =>
    onPool.begin(
      async (client) => {
        await client.query(planByKey);
        return work(client);
      },
      { isolation: "read committed" },
    );

  type Query = (text: string, params: readonly unknown[]) => Promise<readonly Row[]>;

  /** Runs everything that `work` queries in one transaction on one connection. */
  const looking = <R>(what: string, work: (query: Query) => Promise<R>): Promise<R> =>
    guarded(what, () =>
      inTransaction((client) => work(async (text, params) => (await client.query(text, [...params])).rows)),
    );

  const look = (what: string, text: string, params: readonly unknown[]): Promise<readonly Row[]> =>
    looking(what, (query) => query(text, params));

  async function reach({ action, box, status, filter }: CheckedSelection, limit: number): Promise<Reach> {
    const statement = new Statement();
    const once = action === "replay";
    // One more row shows whether there are more.
    const first = { limit: limit + 1 };
    const picked = selectSql(statement, await tablesOf(box), {
      status,
      filter,
      reach: first,
      list: "m.position",
      once,
    });
    const until = "(extract(epoch FROM statement_timestamp()) * 1000000::numeric)::bigint AS until";
    const [row] = await look(
      "count messages",
      `SELECT count(*) AS count, max(position) FILTER (WHERE place <= ${statement.add(limit, "bigint")}) AS last, ${until}
       FROM (SELECT position, row_number() OVER (ORDER BY position) AS place FROM (${picked}) AS picked) AS picked`,
      statement.params,
    );
    return { count: Number(row?.count), upTo: Number(row?.last ?? 0), until: Number(row?.until) };
  }

  /** Appends the rows of one step of a replay again. */
  async function replayStep(t: BoxTables, { status, filter, confirm, ...change }: CheckedChange, step: BoundedStep) {
    return inTransaction(async (client): Promise<ChangedStep> => {
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
  async function changeStep(t: BoxTables, change: CheckedChange, step: BoundedStep): Promise<ChangedStep> {
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
    if (mayEndHolds) await endHolds(t, lanes, keys);
    return changed;
  }

  /**
   * After a change has committed, ends the holds of these keys that no row waits under. A settle that waited for the
   * change saw the rows that the change removed. It took its own row for one of several and left the hold.
   *
   * If the process crashes before this step, such a hold remains. It delays the next message of its key by one read and
   * then ends.
   */
  async function endHolds(t: BoxTables, lanes: readonly unknown[], keys: readonly unknown[]): Promise<void> {
    if (lanes.length === 0) return;
    await inTransaction(async (client) => {
      await client.query(lockLanesSql(t), [[...new Set(lanes)]]);
      await client.query(endHoldsSql(t), [lanes, keys]);
    });
  }

  return createAdmin({
    runtime: runtimeWith(undefined),
    boxes: () => boxes.names(),
    reach,

    async stats(box, withDone) {
      const t = await tablesOf(box);
      // It counts every row, so the planner may choose how.
      const { rows } = await guarded("count messages", () => run(statsSql(t), [withDone]));
      const [row] = rows;
      return statsFrom(JSON.parse(String(row?.stats)), withDone);
    },

    async look(box, work) {
      const t = await tablesOf(box);
      return looking("read messages", (query) =>
        work({
          async page({ status, filter, before, limit }) {
            const statement = new Statement();
            const reach = before === undefined ? { limit } : { before, limit };
            const text = selectSql(statement, t, { status, filter, reach, list: summary, newest: true });
            return (await query(text, statement.params)).map((row) => storedFrom(status, row));
          },
          async details(status, id) {
            const statement = new Statement();
            const asked = { status, filter: { ids: [id] }, reach: { limit: 1000 }, list: details, newest: true };
            return (await query(selectSql(statement, t, asked), statement.params)).map((row) =>
              detailsFrom(status, row),
            );
          },
        }),
      );
    },

    async audit({ box, limit, before }) {
      const params = [limit, String(before ?? "9223372036854775807")];
      const text = auditSql(await tablesOf(box ?? "outbox"), box === undefined ? "all" : "this");
      return (await look("read the audit", text, params)).map(auditFrom);
    },

    async change(change, step) {
      const t = await tablesOf(change.box);
      const inStep = change.action === "replay" ? replayStep : changeStep;
      return guarded(`${change.action} messages`, () => inStep(t, change, step));
    },

    async setPaused(paused, { box, by, reason }) {
      const verb = paused ? "pause" : "resume";
      await look(`${verb} the box`, pauseSql(await tablesOf(box), verb), [by, reason ?? null]);
    },

    async release(key, { box, by, reason }) {
      const t = await tablesOf(box);
      const lane = laneOf(key);
      return guarded("release a key", async () => {
        const released = await inTransaction(async (client) => {
          await client.query(lockLanesSql(t), [[lane]]);
          const { rows } = await client.query(releaseKeySql(t), [lane, key, by, reason ?? null]);
          await client.query(endHoldsSql(t), [[lane], [key]]);
          return Number(rows[0].count) > 0;
        });
        if (released) await endHolds(t, [lane], [key]);
        return released;
      });
    },
  });
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

interface StatsRecord {
  readonly counts: readonly { status: Status; topic: string; count: number; ageMs: number }[] | null;
  readonly held: BoxStats["heldKeys"];
  readonly paused: boolean;
  readonly unowned: number;
  readonly owners: BoxStats["lanes"]["owners"] | null;
}

function statsFrom({ counts, held, paused, unowned, owners }: StatsRecord, done: boolean): BoxStats {
  const rows = counts ?? [];
  const of = (status: Status) => {
    const own = rows.filter((row) => row.status === status);
    const count = own.reduce((sum, row) => sum + row.count, 0);
    if (count === 0) return { count };
    return { count, oldestAgeMs: Math.max(0, ...own.map(({ ageMs }) => ageMs)) };
  };
  const open = rows.filter(({ status }) => status !== "done");
  const topics = [...new Set(open.map(({ topic }) => topic))].sort();
  const oldestIn = (topic: string) => {
    const unsent = open.filter((row) => row.topic === topic && (row.status === "pending" || row.status === "waiting"));
    return unsent.length === 0 ? {} : { oldestAgeMs: Math.max(0, ...unsent.map(({ ageMs }) => ageMs)) };
  };
  const inTopic = (topic: string, status: Status) =>
    open.find((row) => row.topic === topic && row.status === status)?.count ?? 0;
  return {
    pending: of("pending"),
    waiting: of("waiting"),
    scheduled: of("scheduled"),
    parked: of("parked"),
    ...(done && { done: of("done") }),
    topics: topics.map((topic) => ({
      topic,
      pending: inTopic(topic, "pending"),
      waiting: inTopic(topic, "waiting"),
      scheduled: inTopic(topic, "scheduled"),
      parked: inTopic(topic, "parked"),
      ...oldestIn(topic),
    })),
    heldKeys: held,
    paused,
    lanes: { unowned, owners: [...(owners ?? [])].sort((a, b) => (a.owner < b.owner ? -1 : 1)) },
  };
}

function storedFrom(status: Status, row: Row): StoredMessage {
  const { key, last_error: lastError, due_at: dueAt, schedule_key: scheduleKey, published_at: publishedAt } = row;
  return {
    status,
    position: Number(row.position),
    lane: Number(row.lane),
    id: String(row.id),
    type: String(row.type),
    topic: String(row.topic),
    source: String(row.source),
    ...(key !== null && { key: String(key) }),
    bytes: Number(row.bytes),
    attempts: Number(row.attempts),
    ...(lastError !== null && { lastError: String(lastError) }),
    createdAt: dateFrom(row.created_at),
    updatedAt: dateFrom(row.updated_at),
    // A hold that only an operator can release has no due time.
    ...(dueAt !== null && Number.isFinite(dateFrom(dueAt).getTime()) && { dueAt: dateFrom(dueAt) }),
    ...(scheduleKey !== null && { scheduleKey: String(scheduleKey) }),
    ...(publishedAt !== null && { publishedAt: dateFrom(publishedAt) }),
  };
}

function detailsFrom(status: Status, row: Row): StoredMessageDetails {
  const failures = JSON.parse(String(row.failures ?? "[]")) as { attempt: number; at: string; error: string }[];
  return {
    ...storedFrom(status, row),
    ...messageFrom(row as unknown as MessageRecord),
    failures: failures.map(({ attempt, at, error }): Failure => ({ attempt, at: new Date(at), error })),
  };
}

function auditFrom(row: Row): AuditEntry {
  return {
    number: Number(row.number),
    at: dateFrom(row.at),
    box: String(row.box),
    action: row.action as AuditEntry["action"],
    by: String(row.actor),
    ...(row.reason !== null && { reason: String(row.reason) }),
    ...(row.selection !== null && { selection: JSON.parse(String(row.selection)) }),
    count: Number(row.count),
    ids: JSON.parse(String(row.ids)),
  };
}

/** Already a Date, unless the user has set another parser for timestamps. */
function dateFrom(value: unknown): Date {
  return value instanceof Date ? value : new Date(String(value));
}
