import { PostboxError } from "../../errors.js";
import { laneOf } from "../../internal/lane.js";
import type { Box, Executor, Lane, Row, Settlement } from "../../store.js";
import { sqlState } from "../../transactions/sql-state.js";
import { lateSql, leaveSql, ownSql, readSql, releaseSql, renewSql } from "./box-sql.js";
import { errorText } from "./error-text.js";
import { type MessageRecord, messageFrom } from "./message-columns.js";
import { boxTables } from "./names.js";
import { schemaError } from "./schema-check.js";
import { settleSentSql, settleSql } from "./settle-sql.js";

/**
 * A box in Postgres. Each verb is one statement in a transaction of its own: a crash leaves all of it or nothing, and a
 * verb whose answer was lost may be called again.
 */
export function postgresBox(
  schema: string,
  name: string,
  run: Executor,
  checkSchema: (execute: Executor) => Promise<void>,
): Box {
  const tables = boxTables(schema, name);
  const statements = {
    own: ownSql(tables),
    renew: renewSql(tables),
    release: releaseSql(tables),
    leave: leaveSql(tables),
    read: readSql(tables),
    late: lateSql(tables),
    settle: settleSql(tables),
    "settle the sent rows of": settleSentSql(tables),
  };

  async function query(verb: keyof typeof statements, params: readonly unknown[]) {
    try {
      await checkSchema(run);
      return (await run(statements[verb], params)).rows;
    } catch (thrown) {
      const error = schemaError(thrown, schema);
      if (error instanceof PostboxError) throw error;
      throw new PostboxError("store-failed", `could not ${verb} the box ${name} in Postgres: ${reasonOf(error)}`, {
        cause: error,
      });
    }
  }

  return {
    async renew(owner, leaseMs) {
      const rows = await query("renew", [owner, leaseMs]);
      return { members: Number(rows[0]?.members), lanes: lanesFrom(rows.filter(({ lane }) => lane !== null)) };
    },

    async own(owner, most) {
      return lanesFrom(await query("own", [owner, most, laneOf(owner)]));
    },

    async release(owner, lanes) {
      if (lanes === undefined) await query("leave", [owner]);
      else await query("release", [owner, lanes.map(({ lane }) => lane), lanes.map(({ epoch }) => epoch)]);
    },

    async read(lanes) {
      if (lanes.length === 0) return [];
      const rows = await query("read", [
        lanes.map(({ lane }) => lane),
        lanes.map(({ limit }) => limit),
        lanes.map(({ after = 0 }) => after),
      ]);
      // A union of limited selects promises no order of its own.
      return rows.map(rowFrom).sort(byLane);
    },

    async late(gaps) {
      if (gaps.length === 0) return [];
      const known = gaps.flatMap((gap) => gap.known.map((position) => ({ lane: gap.lane, position })));
      const rows = await query("late", [
        gaps.map(({ lane }) => lane),
        gaps.map(({ after }) => after),
        gaps.map(({ upTo }) => upTo),
        known.map(({ lane }) => lane),
        known.map(({ position }) => position),
      ]);
      return rows.map((record) => ({ ...rowFrom(record), ageMs: Number(record.age_ms) }));
    },

    async settle(lanes, settlements, { keep = false } = {}) {
      const fence = [lanes.map(({ lane }) => lane), lanes.map(({ epoch }) => epoch)];
      const onlySent = !keep && settlements.every(({ row, to }) => to === "sent" && !row.waiting);
      const rows = onlySent
        ? await query("settle the sent rows of", [
            ...fence,
            settlements.map(({ row }) => row.lane),
            settlements.map(({ row }) => row.position),
          ])
        : await query("settle", [...fence, ...settlementColumns(settlements), keep]);
      return new Set(rows.map(({ lane }) => Number(lane)));
    },
  };
}

function lanesFrom(rows: readonly Record<string, unknown>[]): Lane[] {
  return rows.map(({ lane, epoch }) => ({ lane: Number(lane), epoch: Number(epoch) })).sort((a, b) => a.lane - b.lane);
}

/** One array per column: lane, position, waiting, fate, tries, retry_in_ms, error. */
function settlementColumns(settlements: readonly Settlement[]): unknown[][] {
  const fates = settlements.map((settlement) => (settlement.to === "sent" ? undefined : settlement));
  return [
    settlements.map(({ row }) => row.lane),
    settlements.map(({ row }) => row.position),
    settlements.map(({ row }) => row.waiting),
    settlements.map(({ to }) => to),
    fates.map((fate) => fate?.attempts ?? null),
    fates.map((fate) => (fate?.to === "wait" ? (fate.retryInMs ?? null) : null)),
    fates.map((fate) => (fate?.error === undefined ? null : errorText(fate.error))),
  ];
}

/** `bigint` arrives as text, or as whatever the user's parser for it makes of it. */
function rowFrom(record: Readonly<Record<string, unknown>>): Row {
  return {
    lane: Number(record.lane),
    position: Number(record.position),
    message: messageFrom(record as unknown as MessageRecord),
    attempts: Number(record.attempts),
    waiting: record.waiting === true,
    held: record.held === true,
  };
}

/** Lane by lane; what waits comes first, since it is older. */
function byLane(a: Row, b: Row): number {
  return a.lane - b.lane || Number(b.waiting) - Number(a.waiting) || a.position - b.position;
}

/** A connection that is refused on several addresses has no text of its own, only a code. */
function reasonOf(error: unknown): string {
  const { message, code } = error as { readonly message?: string; readonly code?: string };
  return message || code || sqlState(error) || String(error);
}
