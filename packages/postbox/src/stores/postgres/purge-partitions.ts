import { sleep } from "../../internal/runtime.js";
import { sqlState } from "../../transactions/sql-state.js";
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
import type { PurgeRun } from "./purge-run.js";

/** How long a settle may have to wait while a partition is detached. */
const lockTimeoutMs = 300;
const lockTries = 5;
const lockNotAvailable = "55P03";

/** Purges `done` by its partitions. */
export class PartitionPurge {
  made = 0;
  dropped = 0;
  readonly #purge: PurgeRun;
  readonly #schema: string;

  constructor(purge: PurgeRun, schema: string) {
    this.#purge = purge;
    this.#schema = schema;
  }

  /** Handles one partition at a time, so that rows that are not archived yet stay visible and can be replayed. */
  async clean(): Promise<void> {
    const [schema, { retentionMs }] = [this.#schema, this.#purge.options];
    const { found, now } = await this.#present();
    for (const partition of missingPartitions("outbox", now, partitionWidth(retentionMs), found)) {
      if (!(await this.#purge.mayGoOn())) return;
      if (await this.#patiently(attachSql(schema, "outbox", partition))) this.made++;
    }
    // Partitions that a crashed purge had detached.
    for (const { name } of (await this.#purge.run(cutOffSql(schema, "outbox"), [])).rows)
      if (!(await this.#drop(String(name)))) return;
    const old = found.filter(({ to }) => to <= now - retentionMs).sort((a, b) => a.from - b.from);
    for (const partition of old) {
      if (!(await this.#purge.mayGoOn())) return;
      if (!(await this.#patiently(cutOffPartitionSql(schema, "outbox", partition)))) continue;
      const putBack = () => this.#patiently(reattachSql(schema, "outbox", partition)).catch(() => {});
      try {
        if (await this.#drop(cutOffName("outbox", partition))) continue;
      } catch (error) {
        await putBack();
        throw error;
      }
      await putBack();
      return;
    }
  }

  /** Deletes row by row, for a role that may not drop partitions. */
  async cleanByRow(): Promise<void> {
    const { found, now } = await this.#present();
    const old = found
      .filter(({ from }) => from < now - this.#purge.options.retentionMs)
      .sort((a, b) => a.from - b.from);
    for (const partition of old) await this.#purge.cleanRows(this.#purge.tables.done, partition);
  }

  /**
   * Passes all rows of a detached table to the archive, then drops it. Returns false if it had to stop before that.
   */
  async #drop(name: string): Promise<boolean> {
    const purge = this.#purge;
    const table = `"${this.#schema}"."${name}"`;
    if (purge.options.archive !== undefined && !(await purge.archiveAll(table))) return false;
    if (!(await purge.mayGoOn())) return false;
    const { rows } = await purge.run(`SELECT count(*) AS count FROM ${table}`, []);
    await purge.run(`DROP TABLE ${table}`, []);
    purge.removed += Number(rows[0]?.count);
    this.dropped++;
    return true;
  }

  async #present(): Promise<{ readonly found: readonly Partition[]; readonly now: number }> {
    return this.#purge.inTransaction(async (client) => {
      await client.query(plainTimes);
      const { rows } = await client.query(partitionsSql(this.#purge.tables));
      const clock = await client.query("SELECT extract(epoch FROM clock_timestamp()) * 1000::numeric AS now");
      const found = rows.map(({ name, from_ms, to_ms }) => ({ name, from: Number(from_ms), to: Number(to_ms) }));
      return { found, now: Number(clock.rows[0].now) };
    });
  }

  /** Returns false if it did not get the lock. It must not wait longer, because settles queue up behind it. */
  async #patiently(text: string): Promise<boolean> {
    for (let tries = 1; tries <= lockTries; tries++) {
      try {
        await this.#purge.inTransaction(async (client) => {
          await client.query(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
          await client.query(text);
        });
        return true;
      } catch (error) {
        if (sqlState(error) !== lockNotAvailable) throw error;
        await sleep(this.#purge.runtime, lockTimeoutMs, this.#purge.options.signal);
      }
    }
    return false;
  }
}
