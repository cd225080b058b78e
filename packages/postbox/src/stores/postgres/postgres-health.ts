import type { Pool, PoolClient, QueryResult } from "pg";
import { ConfigError } from "../../errors.js";
import type { Health } from "../../health.js";
import { reasonOf } from "../../internal/reason-of.js";
import { runtimeWith } from "../../internal/runtime.js";
import { scrub } from "../../internal/scrub.js";
import { withTimeout } from "../../internal/with-timeout.js";
import type { Executor } from "../../store.js";
import { sqlState } from "../../transactions/sql-state.js";
import { requireBox } from "../box-names.js";
import { type BoxSight, boxProblems, countedBeyond, healthOf } from "../box-problems.js";
import { duration } from "../figures.js";
import type { CheckedHealth } from "../health-options.js";
import type { BoxFinder } from "./box-numbers.js";
import { planByKey } from "./by-key.js";
import { plainTimes } from "./done-partitions.js";
import { boxSightSql, overflowedSql, upkeepSql } from "./health-sql.js";
import { schemaVersion } from "./migrations.js";
import type { BoxTables } from "./names.js";
import type { OpenConnection } from "./own-connection.js";
import { type CheckedLimits, checkLimits } from "./postgres-limits.js";
import type { PostgresHealthOptions, PostgresHealthProblem } from "./postgres-problems.js";
import {
  isRefused,
  refusedText,
  type SchemaFault,
  schemaFault,
  schemaMissingText,
  undefinedTable,
} from "./schema-check.js";
import { orderBlocked, tableProblems, type Upkeep, vacuumHeldBack } from "./upkeep-problems.js";

/** What a health check has found so far. If it is cut short, these findings are still reported. */
interface Seen {
  connected?: boolean;
  fault?: SchemaFault;
  /** The tables of the outbox, and of the inboxes, which share theirs. */
  readonly tables: { readonly upkeep: string; readonly of: string; overflowedMs?: number }[];
  readonly sights: { readonly box: string; readonly sight: string }[];
}

/** `Store.health` in PostgreSQL: a read-only transaction with a few short statements. */
export function postgresHealth(
  schema: string,
  pool: Pool,
  boxes: BoxFinder,
  open: OpenConnection | undefined,
  difference: () => string | undefined = () => undefined,
): (options?: PostgresHealthOptions) => Promise<Health<PostgresHealthProblem>> {
  const runtime = runtimeWith(undefined);
  /** Checks that timed out but have not ended. While there are any, no other check waits for a connection. */
  let stuck: Promise<unknown> = Promise.resolve();

  return async (options) => {
    const limits = checkLimits(options);
    if (limits.box !== undefined) requireBox(limits.box);
    const seen: Seen = { tables: [], sights: [] };
    const late = new Error("too late");
    const failures: PostgresHealthProblem[] = [];
    const text = difference();
    if (text !== undefined) failures.push({ code: "databases-differ", severity: "error", text });
    try {
      await withTimeout(
        runtime,
        limits.timeoutMs,
        () => late,
        async (signal) => {
          await stuck;
          if (signal.aborted) return;
          const looking = look(connectTo(pool, open, limits.timeoutMs), schema, boxes, limits, seen, signal);
          signal.addEventListener("abort", () => {
            stuck = Promise.allSettled([stuck, looking]);
          });
          await looking;
        },
      );
    } catch (error) {
      if (error instanceof ConfigError) throw error;
      if (sqlState(error) === undefinedTable) seen.fault = { code: "schema-missing", text: schemaMissingText(schema) };
      else failures.push(failureOf(error === late ? undefined : error, seen, limits, pool));
    }
    return healthOf([...failures, ...problemsOf(seen, limits)]);
  };
}

/**
 * Runs upkeep first. If vacuum is held back, the query for the oldest message may take too long, and upkeep explains
 * why.
 */
async function look(
  connect: Connect,
  schema: string,
  boxes: BoxFinder,
  limits: CheckedLimits,
  seen: Seen,
  signal: AbortSignal,
): Promise<void> {
  await inTransaction(connect, limits.timeoutMs, signal, async (execute) => {
    seen.connected = true;
    const fault = await schemaFault(execute, schema);
    if (fault !== undefined) {
      seen.fault = fault;
      return;
    }
    const names = limits.box === undefined ? await boxes.names(execute) : [limits.box];
    const all: (readonly [string, BoxTables])[] = [];
    for (const box of names) all.push([box, await boxes.existing(box, execute)]);
    // Also for the catalogs: in a database with many tables, the server's own plan for a join of them reads all of
    // them.
    await execute(planByKey, []);
    for (const [of, t] of all) {
      if (all.find(([, other]) => other.pending === t.pending)?.[0] !== of) continue;
      const tables: Seen["tables"][number] = { of, upkeep: String((await execute(upkeepSql(t), [])).rows[0]?.upkeep) };
      seen.tables.push(tables);
      const [overflowed] = (await execute(overflowedSql(t), [])).rows;
      if (overflowed !== undefined) tables.overflowedMs = Number(overflowed.ms);
    }
    const counting = [limits.parked + countedBeyond + 1, countedBeyond + 1];
    for (const [box, t] of all) {
      seen.sights.push({ box, sight: String((await execute(boxSightSql(t), counting)).rows[0]?.sight) });
    }
  });
}

/** A connection for a health check. `release` with an error closes it. */
interface Looking {
  query(text: string, params?: readonly unknown[]): Promise<QueryResult>;
  release(broken?: Error): void;
}

type Connect = (signal: AbortSignal) => Promise<Looking>;

/**
 * Takes a connection of the pool. If all of them are in use, it opens one outside of the pool, so that a busy pool does
 * not make the database look unreachable. If the server refuses another connection, the check waits for the pool.
 */
function connectTo(pool: Pool, open: OpenConnection | undefined, timeoutMs: number): Connect {
  return async (signal) => {
    if (open !== undefined && poolFull(pool)) {
      const own = await open("health", timeoutMs, signal).catch(() => undefined);
      let closed = false;
      const release = () => {
        if (!closed) void own?.close();
        closed = true;
      };
      if (own !== undefined) return { query: own.query, release };
    }
    const client = await pool.connect();
    return { query: (text, params) => client.query(text, params as unknown[]), release: releaseOnce(client) };
  };
}

/**
 * The server's timeout is a little shorter than the caller's, so that the connection stays usable. If the server does
 * not answer at all, the connection is closed, so that its place in the pool is free.
 */
async function inTransaction(
  connect: Connect,
  timeoutMs: number,
  signal: AbortSignal,
  work: (execute: Executor) => Promise<void>,
): Promise<void> {
  const { query, release } = await connect(signal);
  if (signal.aborted) return release();
  signal.addEventListener("abort", () => release(new Error("it gave no answer in time")));
  try {
    await query(
      `BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL statement_timeout = ${Math.ceil(timeoutMs * 0.8)}; ${plainTimes}`,
    );
    await work(async (text, params) => {
      const { rows, rowCount } = await query(text, params);
      return { rows, rowCount: rowCount ?? 0 };
    });
    await query("COMMIT");
  } catch (error) {
    await query("ROLLBACK").catch(release);
    throw error;
  } finally {
    release();
  }
}

function releaseOnce(client: PoolClient): (broken?: Error) => void {
  let released = false;
  // The pool listens to idle clients only. A connection that breaks between two statements would end the process.
  const ignore = () => {};
  client.on("error", ignore);
  return (broken) => {
    if (released) return;
    released = true;
    if (broken === undefined) client.removeListener("error", ignore);
    client.release(broken);
  };
}

function problemsOf({ fault, tables, sights }: Seen, limits: CheckedLimits): PostgresHealthProblem[] {
  if (fault !== undefined) return [faultProblem(fault)];
  const kept = tables.map(({ of, upkeep, overflowedMs }) => ({
    of,
    upkeep: { ...JSON.parse(upkeep), overflowedMs } as Upkeep,
  }));
  const found = sights.map(({ box, sight }) => ({ box, sight: sightFrom(JSON.parse(sight)) }));
  return [
    ...found.flatMap(({ box, sight }) => boxProblems(box, sight, limits)),
    ...found.flatMap(({ box, sight }) =>
      kept.slice(0, 1).flatMap(({ upkeep }) => orderBlocked(box, upkeep, sight, limits)),
    ),
    // What holds back vacuum does so for all tables of the database.
    ...kept.slice(0, 1).flatMap(({ upkeep }) => vacuumHeldBack(upkeep, limits)),
    ...kept.flatMap(({ of, upkeep }) => tableProblems(of, upkeep, limits)),
  ];
}

function faultProblem({ code, text, version = 0 }: SchemaFault): PostgresHealthProblem {
  if (code === "schema-missing") return { code, severity: "error", text };
  return { code, severity: "error", text, version, needed: schemaVersion };
}

interface SightRecord extends Omit<BoxSight, "unsent" | "retried" | "unroutable" | "late" | "relays" | "heldKeys"> {
  readonly unsent: BoxSight["unsent"] | null;
  readonly retried: BoxSight["retried"] | null;
  readonly unroutable: BoxSight["unroutable"] | null;
  readonly late: BoxSight["late"] | null;
  readonly relays: BoxSight["relays"] | null;
  readonly paused: { readonly at: number; readonly forMs: number } | null;
  readonly heldKeys: readonly string[] | null;
}

function sightFrom(record: SightRecord): BoxSight {
  const { unsent, retried, unroutable, late, relays, paused, heldKeys, ...counts } = record;
  return {
    ...counts,
    ...(unsent && { unsent }),
    ...(retried && { retried }),
    ...(unroutable && { unroutable }),
    ...(late && { late }),
    relays: relays ?? [],
    heldKeys: heldKeys ?? [],
    ...(paused && { pausedAt: new Date(paused.at), pausedForMs: paused.forMs }),
  };
}

const canceled = "57014";
/** SQLSTATE classes: connection, authentication or database refused, out of resources, or shutting down. */
const awayClasses: ReadonlySet<string> = new Set(["08", "28", "3D", "53", "57"]);

/** Without an error, the check timed out. */
function failureOf(
  error: unknown,
  { connected }: Seen,
  { timeoutMs }: CheckedHealth,
  pool: Pool,
): PostgresHealthProblem {
  const state = sqlState(error);
  const reason = scrub(reasonOf(error));
  if (error === undefined || state === canceled) {
    const what = connected
      ? "it answers too slowly, or waits for a lock; pg_stat_activity shows what it does and who waits for whom"
      : poolFull(pool)
        ? `all ${pool.totalCount} connections of the pool are in use, and ${pool.waitingCount} wait for one; ` +
          "make it larger, or hold them for a shorter time"
        : "no connection could be opened; check the network and the server";
    const text = `the database gave no answer within ${duration(timeoutMs)}: ${what}`;
    return { code: "unreachable", severity: "error", text, timedOut: true };
  }
  if (state !== undefined && isRefused(error)) {
    return { code: "store-refused", severity: "error", text: refusedText(reason), sqlState: state };
  }
  if (state === undefined || awayClasses.has(state.slice(0, 2))) {
    const text =
      `the database cannot be reached: ${reason}; ` +
      "check that it runs, and that its address and credentials are right";
    return { code: "unreachable", severity: "error", text, timedOut: false };
  }
  const text =
    `the database refused a health check: ${reason}; ` +
    "its role needs USAGE on the schema and SELECT on all its tables";
  return { code: "unreadable", severity: "error", text, sqlState: state };
}

function poolFull({ totalCount, idleCount, options }: Pool): boolean {
  return idleCount === 0 && totalCount >= (options.max ?? 10);
}
