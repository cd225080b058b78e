import { PostboxError } from "../../errors.js";
import { laneOf } from "../../internal/lane.js";
import type { Box, Lane, Member, Row, Settled, Settlement, TakenLane } from "../../store.js";
import { sqlState } from "../../transactions/sql-state.js";
import { dueSql, lateSql, leaveSql, ownSql, promoteSql, readSql, releaseSql, renewSql } from "./box-sql.js";
import { openPartitionSql } from "./done-partitions.js";
import { errorText } from "./error-text.js";
import { type MessageRecord, messageFrom } from "./message-columns.js";
import type { BoxTables } from "./names.js";
import type { StatementRunner } from "./run-statement.js";
import { type SchemaCheck, schemaError } from "./schema-check.js";
import { type KeptIn, settleSentSql, settleSql, suspectSql } from "./settle-sql.js";

/**
 * A box in Postgres. Each verb is one statement in a transaction of its own: a crash leaves all of it or nothing, and a
 * verb whose answer was lost may be called again.
 */
export function postgresBox(
  schema: string,
  tables: BoxTables,
  name: string,
  run: StatementRunner,
  checkSchema: SchemaCheck,
): Box {
  const statements = {
    own: ownSql(tables),
    renew: renewSql(tables),
    release: releaseSql(tables),
    leave: leaveSql(tables),
    read: readSql(tables),
    due: dueSql(tables),
    late: lateSql(tables),
    promote: promoteSql(tables),
    partition: openPartitionSql(tables),
    suspect: suspectSql(tables),
    settle: settleSql(tables, "done"),
  };
  const settle = { done: statements.settle, overflow: settleSql(tables, "overflow") };
  const settleSent = {
    delete: settleSentSql(tables, undefined),
    done: settleSentSql(tables, "done"),
    overflow: settleSentSql(tables, "overflow"),
  };
  // Not the others: `late` and a settle of all kinds have to be planned for how much it is.
  const often = new Set([statements.read, statements.due, ...Object.values(settleSent)]);
  /** Where what is sent is kept, and until when that is so. */
  let kept: { readonly in: KeptIn; readonly until: number } = { in: "overflow", until: 0 };

  async function query(verb: keyof typeof statements, params: readonly unknown[], text = statements[verb]) {
    try {
      await checkSchema(run);
      return (await run(text, params, often.has(text))).rows;
    } catch (thrown) {
      const error = schemaError(thrown, schema);
      if (error instanceof PostboxError) throw error;
      throw new PostboxError(
        "store-failed",
        `could not ${words[verb] ?? verb} the box ${name} in Postgres: ${reasonOf(error)}`,
        {
          cause: error,
        },
      );
    }
  }

  async function lookForPartition(): Promise<void> {
    const [found] = await query("partition", []);
    const [keptIn, ms] =
      found === undefined ? (["overflow", overflowMs] as const) : (["done", Number(found.left_ms)] as const);
    kept = { in: keptIn, until: performance.now() + ms };
  }

  return {
    async renew(owner, leaseMs, order) {
      const rows = await query("renew", [owner, leaseMs, order]);
      return {
        paused: rows.some(({ lane, owner }) => lane === null && owner === null),
        others: rows.filter(({ lane, owner }) => lane === null && owner !== null).map(memberFrom),
        lanes: lanesFrom(rows.filter((row) => row.lane !== null)).map(({ lane, epoch }) => ({ lane, epoch })),
      };
    },

    async own(owner, most, { dead = [], all = false, except = [] } = {}) {
      const [owners, beats] = [dead.map((member) => member.owner), dead.map(({ beat }) => beat)];
      return lanesFrom(await query("own", [owner, most, laneOf(owner), owners, beats, all, except]));
    },

    async release(owner, lanes) {
      if (lanes === undefined) await query("leave", [owner]);
      else await query("release", [owner, ...fenceOf(lanes)]);
    },

    async read(lanes) {
      const records = await query("read", [
        lanes.map(({ lane }) => lane),
        lanes.map(({ limit }) => limit),
        lanes.map(({ after = 0 }) => after),
        Math.max(0, ...lanes.map(({ limit }) => limit)),
      ]);
      const { rows, open } = readRowsFrom(records, (record) => rowFrom(record, false));
      return { rows: rows.sort(byLane), open };
    },

    async due(lanes) {
      const limits = lanes.map(({ limit }) => limit);
      const records = await query("due", [lanes.map(({ lane }) => lane), limits, Math.max(0, ...limits)]);
      return records.map((record) => rowFrom(record, true)).sort(byLane);
    },

    async late(gaps, limit) {
      const known = gaps.flatMap((gap) => gap.known.map((position) => ({ lane: gap.lane, position })));
      const records = await query("late", [
        gaps.map(({ lane }) => lane),
        gaps.map(({ after }) => after),
        gaps.map(({ upTo }) => upTo),
        known.map(({ lane }) => lane),
        known.map(({ position }) => position),
        limit,
      ]);
      const lateFrom = (record: StatementRow) => ({ ...rowFrom(record, false), ageMs: Number(record.age_ms) });
      const { rows, open } = readRowsFrom(records, lateFrom);
      return { rows: rows.sort((a, b) => a.position - b.position), open };
    },

    async promote(limit) {
      const [row] = await query("promote", [limit]);
      const count = Number(row?.count);
      if (count === limit) return { count, nextInMs: 0 };
      return row?.next_in_ms == null ? { count } : { count, nextInMs: Math.max(0, Number(row.next_in_ms)) };
    },

    async suspect(lanes, rows) {
      const columns = (["lane", "position", "waiting", "crashes"] as const).map((name) => rows.map((row) => row[name]));
      return lanesIn(await query("suspect", [...fenceOf(lanes), ...columns]));
    },

    async settle(lanes, settlements, { keep = false, alone = false } = {}) {
      const fence = fenceOf(lanes);
      const onlySent = settlements.every(({ row, to }) => to === "sent" && !row.waiting);
      const turns = settlements.map(({ row }) => row.turn ?? 0);
      const settleInto = async (keptIn: KeptIn) => {
        if (!onlySent) {
          return settledIn(
            await query(
              "settle",
              [...fence, ...settlementColumns(settlements), keep, alone, turns, settlements.map(holdKeyOf)],
              settle[keptIn],
            ),
          );
        }
        const [of, at] = [arrayOf(settlements, ({ row }) => row.lane), arrayOf(settlements, ({ row }) => row.position)];
        return settledIn(await query("settle", [...fence, of, at], settleSent[keep ? keptIn : "delete"]));
      };
      if (!keep) return settleInto("done");
      if (performance.now() >= kept.until) await lookForPartition();
      if (kept.in === "overflow") return settleInto("overflow");
      try {
        return await settleInto("done");
      } catch (error) {
        // Somebody has dropped it, or the clock was set.
        if (!isPartitionMissing(error)) throw error;
        kept = { in: "overflow", until: performance.now() + overflowMs };
        return settleInto("overflow");
      }
    },
  };
}

/** Where there is no partition, somebody may make one: this often is often enough to look. */
const overflowMs = 60_000;

/** `done` has no partition for now. It has no checks beside those of its partitions. */
function isPartitionMissing(error: unknown): boolean {
  return error instanceof PostboxError && sqlState(error.cause) === "23514";
}

/** Where a verb says too little. */
const words: Readonly<Record<string, string>> = {
  renew: "renew a lease on",
  own: "take lanes of",
  release: "give back lanes of",
  leave: "leave",
  due: "read what is due in",
  late: "look for late commits in",
  promote: "append what is due in",
  partition: "look for the partitions of",
  suspect: "note crashes in",
};

/** A row as the driver gives it. */
type StatementRow = Readonly<Record<string, unknown>>;

function lanesFrom(rows: readonly StatementRow[]): TakenLane[] {
  return rows
    .map(({ lane, epoch, clean }) => ({ lane: Number(lane), epoch: Number(epoch), clean: clean === true }))
    .sort((a, b) => a.lane - b.lane);
}

function lanesIn(rows: readonly StatementRow[]): ReadonlySet<number> {
  return new Set(rows.map(({ lane }) => Number(lane)));
}

/** An array as Postgres writes it: drivers take more care with each element than a number needs. */
function arrayOf<T>(items: readonly T[], number: (item: T) => number): string {
  return `{${items.map(number).join(",")}}`;
}

/** One row without a lane has the number of the transaction. */
function settledIn(rows: readonly StatementRow[]): Settled {
  const [own] = rows.filter(({ lane }) => lane === null);
  return { standing: lanesIn(rows.filter((row) => row !== own)), transaction: Number(own?.transaction) };
}

function fenceOf(lanes: readonly Lane[]): [number[], number[]] {
  return [lanes.map(({ lane }) => lane), lanes.map(({ epoch }) => epoch)];
}

function memberFrom({ owner, relay_order, beat, lease_ms, lives, shares }: StatementRow): Member {
  return {
    owner: String(owner),
    order: relay_order as Member["order"],
    beat: Number(beat),
    leaseMs: Number(lease_ms),
    lives: lives === true,
    shares: shares === true,
  };
}

/** What a row waited under that was sent and may be gone already: nothing else may wait for it. */
function holdKeyOf({ row, to }: Settlement): string | null {
  if (to !== "sent" || !row.waiting) return null;
  return row.message.key ?? `\u0001${row.message.id}`;
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
    fates.map((fate) => {
      if (fate?.to === "parked") return fate.hold ? Number.POSITIVE_INFINITY : null;
      return fate?.to === "wait" ? (fate.retryInMs ?? null) : null;
    }),
    fates.map((fate) => (fate?.error === undefined ? null : errorText(fate.error))),
  ];
}

/** `bigint` arrives as text, or as whatever the user's parser for it makes of it. */
function rowFrom(record: StatementRow, waiting: boolean): Row {
  return {
    lane: Number(record.lane),
    position: Number(record.position),
    message: messageFrom(record as unknown as MessageRecord).message,
    attempts: Number(record.attempts),
    crashes: Number(record.crashes),
    waiting,
    held: record.held === true,
    ...(waiting && { turn: Number(record.turn) }),
  };
}

/** The rows, and, from the one without a lane, the transactions that were open. */
function readRowsFrom<R>(records: readonly StatementRow[], from: (record: StatementRow) => R) {
  const rows: R[] = [];
  let open: ReadonlySet<number> = new Set();
  for (const record of records) {
    if (record.lane === null) open = openIn(String(record.id));
    else rows.push(from(record));
  }
  return { rows, open };
}

function openIn(text: string): ReadonlySet<number> {
  const [, next = "", list = "", more = ""] = text.split(":");
  const beyond = Array.from({ length: Number(more) }, (_, index) => Number(next) + index);
  return new Set([...(list === "" ? [] : list.split(",").map(Number)), ...beyond]);
}

/** A join promises no order. */
function byLane(a: Row, b: Row): number {
  return a.lane - b.lane || a.position - b.position;
}

/** A connection that is refused on several addresses has no text of its own, only a code. */
function reasonOf(error: unknown): string {
  const { message, code } = error as { readonly message?: string; readonly code?: string };
  return message || code || sqlState(error) || String(error);
}
