import { randomUUID } from "node:crypto";
import type { ClientBase } from "pg";
import type { ArchivedMessage, Purged, PurgeOptions } from "../../admin.js";
import { PostboxError } from "../../errors.js";
import { runtimeWith, sleep } from "../../internal/runtime.js";
import { flag } from "../../options.js";
import type { Executor, TransactionLibrary } from "../../store.js";
import { sqlState } from "../../transactions/sql-state.js";
import { checkPurge } from "../admin-options.js";
import { type MessageRecord, messageFrom } from "../message-record.js";
import { purgeBatches } from "../purge-batches.js";
import type { BoxFinder } from "./box-numbers.js";
import { planByKey } from "./by-key.js";
import {
  attachSql,
  cutOffName,
  cutOffPartitionSql,
  cutOffSql,
  missingPartitions,
  type Partition,
  partitionsSql,
  partitionWidth,
  plainTimes,
  reattachSql,
} from "./done-partitions.js";
import { messageSelection } from "./message-columns.js";
import type { StatementRunner } from "./run-statement.js";
import { type SchemaCheck, schemaError } from "./schema-check.js";

/** Small enough not to delay a settle, large enough to make progress. */
const batch = 1000;
/** The size limit of one batch for an archive. A single message may be larger. */
const mostArchivedBytes = 16 * 1024 * 1024;
/** How long a settle may have to wait while a partition is detached. */
const lockTimeoutMs = 300;
const lockTries = 5;
const lockNotAvailable = "55P03";
/**
 * How much longer than the retention an id is stored. A statement that found a message young enough, and then waited
 * for another transaction, must not insert its id after it was deleted.
 */
const forgetLaterMs = 60_000;
const insufficientPrivilege = "42501";

export interface PostgresPurgeOptions extends PurgeOptions {
  /**
   * Whether to create and drop partitions, which only the owner of the tables may do. If false, sent messages are
   * deleted in small batches, wherever they are. Defaults to true.
   */
  readonly partitions?: boolean;
}

/** What `purge` deleted, with the weeks of remembered ids that it dropped. */
export interface PostgresPurged extends Purged {
  readonly partitionsMade: number;
  readonly partitionsDropped: number;
}

/** The rules of options that only this store has. */
export const purgeRules = { partitions: flag };

/** `Store.purge` in PostgreSQL. It works in steps and may stop after any of them; the next call continues. */
export function postgresRetention(
  schema: string,
  boxes: BoxFinder,
  run: StatementRunner,
  onPool: TransactionLibrary<ClientBase>,
  checkSchema: SchemaCheck,
): (options: PostgresPurgeOptions) => Promise<PostgresPurged> {
  const runtime = runtimeWith(undefined);

  return async (options) => {
    const { box, retentionMs, archive, partitions = true, signal } = checkPurge(options, purgeRules);
    const t = await boxes.existing(box);
    const cleaner = randomUUID();
    const purged = { busy: false, removed: 0, partitionsMade: 0, partitionsDropped: 0 };

    const inTransaction = <R>(work: (client: ClientBase) => Promise<R>): Promise<R> =>
      onPool.begin(work, { isolation: "read committed" });

    /** Call it before each step. Returns false if another purge is running or this one has to stop. */
    async function mayGoOn(): Promise<boolean> {
      if (signal?.aborted) return false;
      const { rows } = await run(
        `UPDATE ${t.boxes} SET cleaner = $1::text, cleaner_until = clock_timestamp() + interval '1 minute'
         WHERE number = ${t.box} AND (cleaner_until IS NULL OR cleaner_until < clock_timestamp() OR cleaner = $1::text)
         RETURNING number`,
        [cleaner],
      );
      return rows.length > 0;
    }

    async function present(): Promise<{ readonly found: readonly Partition[]; readonly now: number }> {
      return inTransaction(async (client) => {
        await client.query(plainTimes);
        const { rows } = await client.query(partitionsSql(t));
        const clock = await client.query("SELECT extract(epoch FROM clock_timestamp()) * 1000::numeric AS now");
        const found = rows.map(({ name, from_ms, to_ms }) => ({ name, from: Number(from_ms), to: Number(to_ms) }));
        return { found, now: Number(clock.rows[0].now) };
      });
    }

    /** Returns false if it did not get the lock. It must not wait longer, because settles queue up behind it. */
    async function patiently(text: string): Promise<boolean> {
      for (let tries = 1; tries <= lockTries; tries++) {
        try {
          await inTransaction(async (client) => {
            await client.query(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
            await client.query(text);
          });
          return true;
        } catch (error) {
          if (sqlState(error) !== lockNotAvailable) throw error;
          await sleep(runtime, lockTimeoutMs, signal);
        }
      }
      return false;
    }

    const { archived, removeAll } = purgeBatches({ runtime, mayGoOn, archive, signal });

    /**
     * Passes all rows of a detached table to the archive, then drops it. Returns false if it had to stop before that.
     */
    async function drop(name: string): Promise<boolean> {
      const table = `"${schema}"."${name}"`;
      for (let after = "-9223372036854775808"; archive !== undefined; ) {
        if (!(await mayGoOn())) return false;
        const { rows } = await walk(archiveSql(table, "position > $1::bigint", "position"), [after]);
        if (rows.length === 0) break;
        await archived(rows.map(archivedFrom));
        after = String(rows.at(-1)?.position);
      }
      if (!(await mayGoOn())) return false;
      const { rows } = await run(`SELECT count(*) AS count FROM ${table}`, []);
      await run(`DROP TABLE ${table}`, []);
      purged.removed += Number(rows[0]?.count);
      purged.partitionsDropped++;
      return true;
    }

    /** Handles one partition at a time, so that rows that are not archived yet stay visible and can be replayed. */
    async function cleanPartitions(): Promise<void> {
      const { found, now } = await present();
      for (const partition of missingPartitions("outbox", now, partitionWidth(retentionMs), found)) {
        if (!(await mayGoOn())) return;
        if (await patiently(attachSql(schema, "outbox", partition))) purged.partitionsMade++;
      }
      // Partitions that a crashed purge had detached.
      for (const { name } of (await run(cutOffSql(schema, "outbox"), [])).rows) if (!(await drop(String(name)))) return;
      const old = found.filter(({ to }) => to <= now - retentionMs).sort((a, b) => a.from - b.from);
      for (const partition of old) {
        if (!(await mayGoOn())) return;
        if (!(await patiently(cutOffPartitionSql(schema, "outbox", partition)))) continue;
        const putBack = () => patiently(reattachSql(schema, "outbox", partition)).catch(() => {});
        try {
          if (await drop(cutOffName("outbox", partition))) continue;
        } catch (error) {
          await putBack();
          throw error;
        }
        await putBack();
        return;
      }
    }

    /** Runs one statement as an index scan, whatever the statistics say. */
    const walk: Executor = (text, params) =>
      inTransaction(async (client) => {
        await client.query(planByKey);
        const { rows, rowCount } = await client.query(text, [...params]);
        return { rows, rowCount: rowCount ?? 0 };
      });

    /**
     * Deletes in small batches, each an index scan: by time; or, within a partition, which has no such index, by
     * position, from where the previous batch ended. A partition is addressed by its bounds, because a role may have
     * rights on `done` only.
     */
    async function cleanRows(table: string, partition?: Partition): Promise<void> {
      // statement_timestamp() is stable, so an index can serve the condition.
      const old = "done_at < statement_timestamp() - $1::double precision * interval '1 millisecond'";
      const at = (ms: number) => `'${new Date(ms).toISOString()}'::timestamptz`;
      const within =
        partition === undefined ? "true" : `done_at >= ${at(partition.from)} AND done_at < ${at(partition.to)}`;
      const order = partition === undefined ? "done_at" : "position";
      const where = `${old} AND ${within} AND ($2::bigint IS NULL OR position > $2::bigint)`;
      const found =
        archive === undefined
          ? `SELECT position FROM ${table} WHERE ${where} ORDER BY ${order} LIMIT ${batch}`
          : archiveSql(table, where, order);
      const deleting = `DELETE FROM ${table} WHERE position = ANY ($2::bigint[]) AND ${old} AND ${within}`;
      let after = "-9223372036854775808";
      purged.removed += await removeAll(async () => {
        const { rows } = await walk(found, [retentionMs, partition === undefined ? null : after]);
        if (rows.length === 0) return undefined;
        const positions = rows.map(({ position }) => position);
        after = String(positions.at(-1));
        return {
          ...(archive !== undefined && { messages: rows.map(archivedFrom) }),
          remove: async () => (await walk(deleting, [retentionMs, positions])).rowCount,
        };
      });
    }

    /** Deletes row by row, for a role that may not drop partitions. */
    async function cleanDone(): Promise<void> {
      const { found, now } = await present();
      const old = found.filter(({ from }) => from < now - retentionMs).sort((a, b) => a.from - b.from);
      for (const partition of old) await cleanRows(t.done, partition);
    }

    /** Forgets the ids of this consumer, oldest first, in small batches. After a crash, the next call continues. */
    async function cleanMemory(): Promise<void> {
      // Commit first how far ids are forgotten. From then on, no copy of a forgotten message counts as new, even if the
      // retention grows later.
      await run(
        `UPDATE ${t.boxes} SET forgotten_until =
           greatest(forgotten_until, clock_timestamp() - $1::double precision * interval '1 millisecond')
         WHERE number = ${t.box}`,
        [retentionMs],
      );
      const keptMs = retentionMs + Math.min(forgetLaterMs, retentionMs);
      // Where the last batch ended. The index entries before it are dead and need not be read again.
      let fromMs = 0;
      purged.removed += await removeAll(async () => {
        const { rows } = await run(
          `WITH old AS MATERIALIZED (
             SELECT ctid, since FROM ${t.memory}
             WHERE (consumer || '') = ${t.consumer} AND since >= to_timestamp($1::double precision / 1000)
               AND since < statement_timestamp() - $2::double precision * interval '1 millisecond'
             ORDER BY since LIMIT ${batch}
           ), gone AS (
             DELETE FROM ${t.memory} WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING 1
           )
           SELECT (SELECT count(*) FROM gone) AS gone, count(*) AS found, floor(extract(epoch FROM max(since)) * 1000::numeric) AS up_to
           FROM old`,
          [fromMs, keptMs],
        );
        fromMs = Number(rows[0]?.up_to);
        return { isLast: Number(rows[0]?.found) < batch, remove: async () => Number(rows[0]?.gone) };
      });
    }

    try {
      await checkSchema(run);
      if (!(await mayGoOn())) return { ...purged, busy: !signal?.aborted };
      try {
        if (t.consumer !== undefined) await cleanMemory();
        else {
          // First the steps that need no right except DELETE.
          await cleanRows(t.overflow);
          if (partitions) await cleanPartitions();
          else await cleanDone();
        }
      } finally {
        await run(
          `UPDATE ${t.boxes} SET cleaner = NULL, cleaner_until = NULL WHERE number = ${t.box} AND cleaner = $1`,
          [cleaner],
        );
      }
      return purged;
    } catch (thrown) {
      throw purgeError(schemaError(thrown, schema), box);
    }
  };
}

/** The next batch for the archive, smaller if the messages are large. All of it is in memory at once. */
function archiveSql(table: string, where: string, order: "position" | "done_at"): string {
  return `
    SELECT m.position, m.attempts, m.created_at, m.done_at, ${messageSelection("m")}
    FROM (
      SELECT x.*, sum(octet_length(x.data)) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
      FROM (SELECT * FROM ${table} WHERE ${where} ORDER BY ${order} LIMIT ${batch}) AS x
    ) AS m
    WHERE coalesce(m.bytes_before < ${mostArchivedBytes}, true) ORDER BY m.${order}`;
}

function archivedFrom(row: Readonly<Record<string, unknown>>): ArchivedMessage {
  return {
    message: messageFrom(row as unknown as MessageRecord).message,
    position: Number(row.position),
    attempts: Number(row.attempts),
    createdAt: new Date(row.created_at as Date),
    publishedAt: new Date(row.done_at as Date),
  };
}

function purgeError(error: unknown, box: string): unknown {
  const state = sqlState(error);
  if (error instanceof PostboxError || state === undefined) return error;
  const advice =
    state === insufficientPrivilege
      ? "; only the owner of the tables may create, drop and empty partitions; a role with the right to delete needs " +
        "partitions: false"
      : "";
  return new PostboxError(
    "store-failed",
    `could not clean the box ${box} in Postgres: ${(error as Error).message}${advice}`,
    {
      cause: error,
    },
  );
}
