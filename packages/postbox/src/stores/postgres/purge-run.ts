import { randomUUID } from "node:crypto";
import type { ClientBase } from "pg";
import type { ArchivedMessage } from "../../admin.js";
import { type Runtime, runtimeWith } from "../../internal/runtime.js";
import type { Executor, TransactionLibrary } from "../../store.js";
import type { CheckedPurge } from "../admin-options.js";
import { type MessageRecord, messageFrom } from "../message-record.js";
import { type PurgeBatches, purgeBatches } from "../purge-batches.js";
import { planByKey } from "./by-key.js";
import type { Partition } from "./done-partitions.js";
import { messageSelection } from "./message-columns.js";
import type { BoxTables } from "./names.js";
import type { StatementRunner } from "./run-statement.js";

/** Small enough not to delay a settle, large enough to make progress. */
const batch = 1000;
/** The size limit of one batch for an archive. A single message may be larger. */
const mostArchivedBytes = 16 * 1024 * 1024;
/**
 * How much longer than the retention an id is stored. A statement that found a message young enough, and then waited
 * for another transaction, must not insert its id after it was deleted.
 */
const forgetLaterMs = 60_000;

/** The lowest position. */
const lowest = "-9223372036854775808";

/** One purge of a box: it holds the right to purge, and deletes in steps after any of which it may stop. */
export class PurgeRun {
  readonly tables: BoxTables;
  readonly options: CheckedPurge;
  readonly runtime: Runtime = runtimeWith(undefined);
  readonly run: StatementRunner;
  readonly batches: PurgeBatches;
  /** How many rows it has removed. */
  removed = 0;
  readonly #onPool: TransactionLibrary<ClientBase>;
  readonly #cleaner = randomUUID();

  constructor(tables: BoxTables, options: CheckedPurge, run: StatementRunner, onPool: TransactionLibrary<ClientBase>) {
    this.tables = tables;
    this.options = options;
    this.run = run;
    this.#onPool = onPool;
    const { archive, signal } = options;
    this.batches = purgeBatches({ runtime: this.runtime, mayGoOn: () => this.mayGoOn(), archive, signal });
  }

  /** Call it before each step. Returns false if another purge is running or this one has to stop. */
  async mayGoOn(): Promise<boolean> {
    if (this.options.signal?.aborted) return false;
    const t = this.tables;
    const { rows } = await this.run(
      `UPDATE ${t.boxes} SET cleaner = $1::text, cleaner_until = clock_timestamp() + interval '1 minute'
       WHERE number = ${t.box} AND (cleaner_until IS NULL OR cleaner_until < clock_timestamp() OR cleaner = $1::text)
       RETURNING number`,
      [this.#cleaner],
    );
    return rows.length > 0;
  }

  /** Gives up the right to purge. */
  async end(): Promise<void> {
    const t = this.tables;
    await this.run(
      `UPDATE ${t.boxes} SET cleaner = NULL, cleaner_until = NULL WHERE number = ${t.box} AND cleaner = $1`,
      [this.#cleaner],
    );
  }

  inTransaction<R>(work: (client: ClientBase) => Promise<R>): Promise<R> {
    return this.#onPool.begin(work, { isolation: "read committed" });
  }

  /** Runs one statement as an index scan, whatever the statistics say. */
  walk(...[text, params]: Parameters<Executor>): ReturnType<Executor> {
    return this.inTransaction(async (client) => {
      await client.query(planByKey);
      const { rows, rowCount } = await client.query(text, [...params]);
      return { rows, rowCount: rowCount ?? 0 };
    });
  }

  /** Passes all rows of a detached table to the archive. Returns false if it had to stop before the last one. */
  async archiveAll(table: string): Promise<boolean> {
    for (let after = lowest; ; ) {
      if (!(await this.mayGoOn())) return false;
      const { rows } = await this.walk(archiveSql(table, "position > $1::bigint", "position"), [after]);
      if (rows.length === 0) return true;
      await this.batches.archived(rows.map(archivedFrom));
      after = String(rows.at(-1)?.position);
    }
  }

  /**
   * Deletes in small batches, each an index scan: by time; or, within a partition, which has no such index, by
   * position, from where the previous batch ended. A partition is addressed by its bounds, because a role may have
   * rights on `done` only.
   */
  async cleanRows(table: string, partition?: Partition): Promise<void> {
    const { archive, retentionMs } = this.options;
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
    let after = lowest;
    this.removed += await this.batches.removeAll(async () => {
      const { rows } = await this.walk(found, [retentionMs, partition === undefined ? null : after]);
      if (rows.length === 0) return undefined;
      const positions = rows.map(({ position }) => position);
      after = String(positions.at(-1));
      return {
        ...(archive !== undefined && { messages: rows.map(archivedFrom) }),
        remove: async () => (await this.walk(deleting, [retentionMs, positions])).rowCount,
      };
    });
  }

  /** Forgets the ids of this consumer, oldest first, in small batches. After a crash, the next call continues. */
  async cleanMemory(): Promise<void> {
    const {
      tables: t,
      options: { retentionMs },
    } = this;
    // Commit first how far ids are forgotten. From then on, no copy of a forgotten message counts as new, even if the
    // retention grows later.
    await this.run(
      `UPDATE ${t.boxes} SET forgotten_until =
         greatest(forgotten_until, clock_timestamp() - $1::double precision * interval '1 millisecond')
       WHERE number = ${t.box}`,
      [retentionMs],
    );
    const keptMs = retentionMs + Math.min(forgetLaterMs, retentionMs);
    // Where the last batch ended. The index entries before it are dead and need not be read again.
    let fromMs = 0;
    this.removed += await this.batches.removeAll(async () => {
      const { rows } = await this.run(
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
