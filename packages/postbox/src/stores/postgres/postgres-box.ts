import { PostboxError } from "../../errors.js";
import { laneOf } from "../../internal/lane.js";
import { reasonOf } from "../../internal/reason-of.js";
import { type Box, defaultReadBytes, type Executor, type Member, type Settled, type TakenLane } from "../../store.js";
import { isConnectionLost } from "../../transactions/connection-lost.js";
import { WriterRanges } from "../writer-ranges.js";
import { arrayOf, fenceOf, rowColumns, settleColumns } from "./box-columns.js";
import { boxFunctions } from "./box-functions.js";
import { dueFrom, lateFrom, readFrom } from "./box-rows.js";
import { KeptRows } from "./kept-rows.js";
import { tablesOf } from "./names.js";
import type { Field } from "./plain-rows.js";
import type { RowForm, StatementRunner } from "./run-statement.js";
import { type SchemaCheck, schemaError } from "./schema-check.js";
import type { KeptIn } from "./settle-sql.js";

/**
 * A box in PostgreSQL. Each verb is one statement in its own transaction: a crash leaves all of it or nothing. If the
 * answer to a verb is lost, it may be called again. `number` is called before each statement.
 */
export function postgresBox(
  schema: string,
  name: string,
  number: (look: Executor) => number | Promise<number>,
  run: StatementRunner,
  checkSchema: SchemaCheck,
): Box {
  const tables = tablesOf(schema, name);
  const functions = boxFunctions(tables);
  const kept = new KeptRows(tables, (text) =>
    failing({ schema, name, what: "look for the partitions of" }, undefined, async () => (await run(text, [])).rows),
  );
  type Verb = keyof typeof functions;
  async function query(verb: Verb, params: readonly unknown[], signal?: AbortSignal, form?: RowForm) {
    return failing({ schema, name, what: words[verb] ?? verb }, signal, async () => {
      const look: Executor = (text, given) => run(text, given, signal);
      await checkSchema(look);
      // The number is always the last parameter.
      return (await run(functions[verb].call, [...params, await number(look)], signal, form)).rows;
    });
  }

  async function read(verb: "read" | "due" | "late", params: readonly unknown[], signal?: AbortSignal) {
    return (await query(verb, params, signal, "plain")) as unknown as readonly (readonly Field[])[];
  }

  return {
    async renew(owner, leaseMs, order, signal) {
      const rows = await query("renew", [owner, leaseMs, order], signal);
      return {
        paused: rows.some(({ lane, owner }) => lane === null && owner === null),
        others: rows.filter(({ lane, owner }) => lane === null && owner !== null).map(memberFrom),
        lanes: lanesFrom(rows.filter((row) => row.lane !== null)).map(({ lane, epoch }) => ({ lane, epoch })),
      };
    },

    async own(owner, most, { dead = [], least = 0, except = [] } = {}, signal) {
      const [owners, beats] = [dead.map((member) => member.owner), dead.map(({ beat }) => beat)];
      const params = [owner, most, laneOf(owner), owners, beats, least, except];
      return lanesFrom(await query("own", params, signal));
    },

    async release(owner, lanes, signal) {
      if (lanes === undefined) await query("leave", [owner], signal);
      else await query("release", [owner, ...fenceOf(lanes)], signal);
    },

    async read(lanes, { maxBytes = defaultReadBytes } = {}, signal) {
      const limits = lanes.map(({ limit }) => limit);
      const params = [
        arrayOf(lanes, ({ lane }) => lane),
        arrayOf(lanes, ({ limit }) => limit),
        arrayOf(lanes, ({ after = 0 }) => after),
      ];
      return readFrom(await read("read", [...params, Math.max(0, ...limits), maxBytes], signal), lanes, maxBytes);
    },

    async due(lanes, { maxBytes = defaultReadBytes, except = [] } = {}, signal) {
      const limits = lanes.map(({ limit }) => limit);
      const params = [lanes.map(({ lane }) => lane), limits, Math.max(0, ...limits), maxBytes, except];
      return dueFrom(await read("due", params, signal));
    },

    async late(gaps, limit, { maxBytes = defaultReadBytes } = {}, signal) {
      const known = gaps.flatMap((gap) => gap.known.map((position) => ({ lane: gap.lane, position })));
      const params = [
        arrayOf(gaps, ({ lane }) => lane),
        arrayOf(gaps, ({ after }) => after),
        arrayOf(gaps, ({ upTo }) => upTo),
        arrayOf(known, ({ lane }) => lane),
        arrayOf(known, ({ position }) => position),
      ];
      return lateFrom(await read("late", [...params, limit, maxBytes], signal), limit, maxBytes);
    },

    async promote(limit, signal) {
      const [row] = await query("promote", [limit, mostPromotedBytes], signal);
      const count = Number(row?.count);
      if (count === limit) return { count, nextInMs: 0 };
      return row?.next_in_ms == null ? { count } : { count, nextInMs: Math.max(0, Number(row.next_in_ms)) };
    },

    async suspect(lanes, rows, signal) {
      const { lane, position, id, waiting } = rowColumns(rows);
      const crashes = rows.map((row) => row.crashes);
      return lanesIn(await query("suspect", [...fenceOf(lanes), lane, position, id, waiting, crashes], signal));
    },

    async settle(lanes, settlements, { keep = false, alone = false } = {}, signal) {
      const rows = settleColumns(lanes, settlements);
      const settleInto = async (place: KeptIn | "") =>
        settledIn(await query("settle", [...rows, place, alone], signal));
      return keep ? kept.settle(settleInto) : settleInto("");
    },
  };
}

/** Runs the statement of a verb; `what` says in errors what it does with the box. */
async function failing<R>(
  { schema, name, what }: { readonly schema: string; readonly name: string; readonly what: string },
  signal: AbortSignal | undefined,
  work: () => Promise<R>,
): Promise<R> {
  try {
    return await work();
  } catch (thrown) {
    if (signal?.aborted) throw signal.reason;
    const error = schemaError(thrown, schema);
    if (error instanceof PostboxError || isConnectionLost(error)) throw error;
    throw new PostboxError("store-failed", `could not ${what} the box ${name} in Postgres: ${reasonOf(error)}`, {
      cause: error,
    });
  }
}

/** The limit of one `promote` call. What remains is due at once. */
const mostPromotedBytes = 16 * 1024 * 1024;

/** The wording in errors, for verbs whose name is not clear enough. */
const words: Readonly<Record<string, string>> = {
  renew: "renew a lease on",
  own: "take lanes of",
  release: "give back lanes of",
  leave: "leave",
  due: "read what is due in",
  late: "look for late commits in",
  promote: "append what is due in",
  suspect: "note crashes in",
};

/** A row as the driver returns it. */
type StatementRow = Readonly<Record<string, unknown>>;

function lanesFrom(rows: readonly StatementRow[]): TakenLane[] {
  return rows
    .map(({ lane, epoch, clean }) => ({ lane: Number(lane), epoch: Number(epoch), clean: clean === true }))
    .sort((a, b) => a.lane - b.lane);
}

function lanesIn(rows: readonly StatementRow[]): ReadonlySet<number> {
  return new Set(rows.map(({ lane }) => Number(lane)));
}

/** The row without a lane has the number of the transaction. */
function settledIn(rows: readonly StatementRow[]): Settled {
  const [own] = rows.filter(({ lane }) => lane === null);
  return { standing: lanesIn(rows.filter((row) => row !== own)), writer: WriterRanges.one(Number(own?.transaction)) };
}

function memberFrom({ owner, relay_order, beat, lease_ms, expires_in_ms }: StatementRow): Member {
  return {
    owner: String(owner),
    order: relay_order as Member["order"],
    beat: Number(beat),
    leaseMs: Number(lease_ms),
    expiresInMs: Number(expires_in_ms),
  };
}
