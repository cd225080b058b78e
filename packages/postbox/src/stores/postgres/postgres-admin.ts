import type { ClientBase } from "pg";
import type { Admin, AuditEntry, BoxStats, Failure, Status, StoredMessage, StoredMessageDetails } from "../../admin.js";
import { PostboxError } from "../../errors.js";
import { laneOf } from "../../internal/lane.js";
import { runtimeWith } from "../../internal/runtime.js";
import type { TransactionLibrary } from "../../store.js";
import {
  type CheckedChange,
  type CheckedSelection,
  checkAudit,
  checkChange,
  checkDryRun,
  checkGet,
  checkList,
  checkOperator,
  checkRelease,
  checkStats,
  statuses,
} from "../admin-options.js";
import { changeInBatches } from "../change-batches.js";
import { writeConfirmToken } from "../confirm-token.js";
import { writePageCursor } from "../page-cursor.js";
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
import { type MessageRecord, messageFrom } from "./message-columns.js";
import type { BoxTables } from "./names.js";
import type { StatementRunner } from "./run-statement.js";
import { type SchemaCheck, schemaError } from "./schema-check.js";

/** Where a replay with this token has come to, if it was begun before: it goes on from there, and does nothing twice. */
async function replayedUpTo(client: ClientBase, t: BoxTables, confirm: string | undefined): Promise<number> {
  if (confirm === undefined) return 0;
  await client.query(takeTokenSql, [confirm]);
  const { rows } = await client.query(tokenReachSql(t), [confirm]);
  return Number(rows[0].last ?? 0);
}

/** A row as the driver gives it. */
type Row = Readonly<Record<string, unknown>>;

/** More than there can be. */
const all = 0x7ffffffe;

/** The operator's side of a store in Postgres. Looking is one statement at a time; each batch of a change is a transaction. */
export function postgresAdmin(
  schema: string,
  boxes: BoxFinder,
  run: StatementRunner,
  onPool: TransactionLibrary<ClientBase>,
  checkSchema: SchemaCheck,
): Admin {
  const runtime = runtimeWith(undefined);

  const tablesOf = (box: string): Promise<BoxTables> => guarded("find the box", () => boxes.existing(box));

  async function guarded<R>(what: string, work: () => Promise<R>): Promise<R> {
    try {
      await checkSchema(run);
      return await work();
    } catch (thrown) {
      const error = schemaError(thrown, schema);
      if (error instanceof PostboxError) throw error;
      const { message } = error as Error;
      throw new PostboxError("store-failed", `could not ${what} in Postgres: ${message}`, { cause: error });
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

  /** All that `work` asks for in one transaction, on one connection. */
  const looking = <R>(what: string, work: (query: Query) => Promise<R>): Promise<R> =>
    guarded(what, () =>
      inTransaction((client) => work(async (text, params) => (await client.query(text, [...params])).rows)),
    );

  const look = (what: string, text: string, params: readonly unknown[]): Promise<readonly Row[]> =>
    looking(what, (query) => query(text, params));

  /** How many fit, at most `limit`, and the last of them. */
  async function reachOf({ action, box, status, filter }: CheckedSelection, limit: number) {
    const statement = new Statement();
    const once = action === "replay";
    // One more tells whether there are more.
    const reach = { limit: limit + 1 };
    const picked = selectSql(statement, await tablesOf(box), { status, filter, reach, list: "m.position", once });
    const until = "(extract(epoch FROM statement_timestamp()) * 1000000::numeric)::bigint AS until";
    const [row] = await look(
      "count messages",
      `SELECT count(*) AS count, max(position) FILTER (WHERE place <= ${statement.add(limit, "bigint")}) AS last, ${until}
       FROM (SELECT position, row_number() OVER (ORDER BY position) AS place FROM (${picked}) AS picked) AS picked`,
      statement.params,
    );
    const count = Number(row?.count);
    const bounds = { most: Math.min(count, limit), upTo: Number(row?.last ?? 0), until: Number(row?.until) };
    return { ...bounds, more: count > limit };
  }

  async function change(checked: CheckedChange): Promise<{ readonly count: number }> {
    const { box, status, filter, by, reason, selection, action } = checked;
    const t = await tablesOf(box);
    const { bounds } = checked;
    // What has one of these ids later on, by a replay, is not meant.
    const upTo = filter.ids === undefined ? bounds.upTo : Math.min(bounds.upTo, (await reachOf(checked, all)).upTo);
    const audit = [by, reason ?? null, JSON.stringify(selection), checked.confirm ?? null];
    return guarded(`${action} messages`, () =>
      changeInBatches({ ...checked, bounds: { ...bounds, upTo } }, runtime, async (step) => {
        const left: { lanes: readonly unknown[]; keys: readonly unknown[] } = { lanes: [], keys: [] };
        const changed = await inTransaction(async (client) => {
          const statement = new Statement();
          const reach = bounds.until === Number.MAX_SAFE_INTEGER ? step : { ...step, until: bounds.until };
          if (action === "replay") {
            const after = Math.max(reach.after, await replayedUpTo(client, t, checked.confirm));
            const picked = selectSql(statement, t, {
              status,
              filter,
              reach: { ...reach, after },
              list: replayed,
              once: true,
            });
            const text = replaySql(t, picked, statement.params.length + 1);
            const { rows } = await client.query(text, [...statement.params, ...audit]);
            const count = Number(rows[0].count);
            return { found: count, count, last: Number(rows[0].last) };
          }
          const text = selectSql(statement, t, { status, filter, reach, list: "m.lane, m.position, m.hold_key" });
          const { rows } = await client.query(text, statement.params);
          const column = (name: string) => rows.map((row) => row[name]);
          const [lanes, positions, keys] = [column("lane"), column("position"), column("hold_key")];
          await client.query(lockLanesSql(t), [[...new Set(lanes)]]);
          const changing = action === "retry" ? retryFrom(t, status) : discardSql(t, status as Exclude<Status, "done">);
          const changed = await client.query(changing, [lanes, positions, ...audit]);
          if (action === "retry" && status === "pending") await client.query(disownSql(t), [[...new Set(lanes)]]);
          if (action === "retry" && status !== "parked")
            return { found: rows.length, count: Number(changed.rows[0].count), last: Number(positions.at(-1) ?? 0) };
          if (status === "parked") await client.query(freeKeysSql(t), [lanes, keys]);
          if (status === "waiting") await client.query(advanceKeysSql(t), [lanes, keys, positions]);
          if (status === "parked" || status === "waiting") {
            await client.query(endHoldsSql(t), [lanes, keys]);
            Object.assign(left, { lanes, keys });
          }
          return { found: rows.length, count: Number(changed.rows[0].count), last: Number(positions.at(-1) ?? 0) };
        });
        await endHolds(t, left.lanes, left.keys);
        return changed;
      }),
    );
  }

  /**
   * Ends the holds of these keys that nothing waits under, once more, after a change has committed. A settle that waited for
   * the change has seen the rows that the change has removed: it took its own row for one of several, and left the hold. A crash
   * before this leaves such a hold; it delays the next message of its key by one read, and ends with it.
   */
  async function endHolds(t: BoxTables, lanes: readonly unknown[], keys: readonly unknown[]): Promise<void> {
    if (lanes.length === 0) return;
    await inTransaction(async (client) => {
      await client.query(lockLanesSql(t), [[...new Set(lanes)]]);
      await client.query(endHoldsSql(t), [lanes, keys]);
    });
  }

  return {
    async stats(options) {
      const { box, done } = checkStats(options);
      const t = await tablesOf(box);
      // It counts everything: let the planner say how.
      const { rows } = await guarded("count messages", () => run(statsSql(t), [done]));
      const [row] = rows;
      return statsFrom(JSON.parse(String(row?.stats)), done);
    },

    async list(options) {
      const { box, filter, limit, after, ...asked } = checkList(options);
      const t = await tablesOf(box);
      const found: StoredMessage[] = [];
      const from = after === undefined ? 0 : asked.statuses.indexOf(after.status);
      await looking("list messages", async (query) => {
        for (const status of asked.statuses.slice(from)) {
          const before = after?.status === status ? { before: after.position } : {};
          const statement = new Statement();
          // One more tells whether there is another page.
          const reach = { ...before, limit: limit - found.length + 1 };
          const text = selectSql(statement, t, { status, filter, reach, list: summary, newest: true });
          for (const row of await query(text, statement.params)) found.push(storedFrom(status, row));
          if (found.length > limit) break;
        }
      });
      const messages = found.slice(0, limit);
      const last = messages.at(-1);
      return found.length > limit && last !== undefined
        ? { messages, next: writePageCursor({ status: last.status, position: last.position }) }
        : { messages };
    },

    async get(given, options) {
      const { id, box } = checkGet(given, options);
      const t = await tablesOf(box);
      const found: StoredMessageDetails[] = [];
      await looking("get a message", async (query) => {
        for (const status of statuses) {
          const statement = new Statement();
          const filter = { ids: [id] };
          const text = selectSql(statement, t, { status, filter, reach: { limit: 1000 }, list: details, newest: true });
          for (const row of await query(text, statement.params)) found.push(detailsFrom(status, row));
        }
      });
      return found;
    },

    boxes: () => boxes.names(),

    async audit(options) {
      const { box, limit, before } = checkAudit(options);
      const params = [limit, String(before ?? "9223372036854775807")];
      const text = auditSql(await tablesOf(box ?? "outbox"), box === undefined ? "all" : "this");
      return (await look("read the audit", text, params)).map(auditFrom);
    },

    retry: async (selection, options) => change(checkChange("retry", selection, options)),
    discard: async (selection, options) => change(checkChange("discard", selection, options)),
    replay: async (selection, options) => change({ perSecond: 1000, ...checkChange("replay", selection, options) }),

    async dryRun(action: "retry" | "replay" | "discard", selection: object, options?: object) {
      const checked = checkDryRun(action, selection, options);
      const { more, ...bounds } = await reachOf(checked, checked.limit);
      return { count: bounds.most, more, confirm: writeConfirmToken(checked, bounds) };
    },

    async pause(options) {
      const { box, by, reason } = checkOperator("pause", options);
      await look("pause the box", pauseSql(await tablesOf(box), "pause"), [by, reason ?? null]);
    },

    async resume(options) {
      const { box, by, reason } = checkOperator("resume", options);
      await look("resume the box", pauseSql(await tablesOf(box), "resume"), [by, reason ?? null]);
    },

    async release(given, options) {
      const { key, box, by, reason } = checkRelease(given, options);
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
  };
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
    // Held for good is not due at any time.
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

/** A Date already, unless the user has set another parser for times. */
function dateFrom(value: unknown): Date {
  return value instanceof Date ? value : new Date(String(value));
}
