import { randomUUID } from "node:crypto";
import type { ArchivedMessage, Purged, PurgeOptions } from "../../admin.js";
import { sleep } from "../../internal/runtime.js";
import { checkPurge } from "../admin-options.js";
import { consumerOf } from "../box-names.js";
import { type PurgeBatch, purgeBatches } from "../purge-batches.js";
import { deleteAfterMs } from "./forgotten.js";
import { failing, type MysqlAccess } from "./mysql-access.js";
import { messageColumns, messageOf } from "./mysql-rows.js";
import { msOf, nowSql, storedTime } from "./names.js";

/** Small enough not to delay other writers. */
const batch = 1000;
const leaseMs = 60_000;
/** The size limit of one batch for an archive. A single message may be larger. */
const mostArchivedBytes = 16 * 1024 * 1024;

/** `Store.purge` in MySQL. It works in small batches and may stop after any of them; the next call continues. */
export function mysqlRetention(access: MysqlAccess): (options: PurgeOptions) => Promise<Purged> {
  return async (options) => {
    const checked = checkPurge(options);
    const { box: name, archive, signal } = checked;
    const purge = new Purge(access, await access.used(name), checked);
    return failing(`could not purge the box ${name}`, access.database, async () => {
      const mayGoOn = () => purge.mayGoOn();
      if (!(await mayGoOn())) return { busy: signal?.aborted !== true, removed: 0 };
      const { removeAll } = purgeBatches({ runtime: access.runtime, mayGoOn, archive, signal });
      try {
        if (consumerOf(name) === undefined) return { busy: false, removed: await removeAll(() => purge.nextSent()) };
        await purge.announce();
        return { busy: false, removed: await removeAll(() => purge.nextHandled()) };
      } finally {
        await purge.end();
      }
    });
  };
}

/** One purge of one box. */
class Purge {
  readonly #access: MysqlAccess;
  readonly #box: number;
  readonly #options: PurgeOptions;
  readonly #kept: string;
  readonly #cleaner = randomUUID();
  /** Where the last batch ended: what it has deleted is not walked over again. */
  #after = "0";

  constructor(access: MysqlAccess, box: number, options: PurgeOptions) {
    this.#access = access;
    this.#box = box;
    this.#options = options;
    this.#kept = storedTime(options.retentionMs);
  }

  /** Takes or renews the right to purge. */
  async mayGoOn(): Promise<boolean> {
    const { t } = this.#access;
    if (this.#options.signal?.aborted) return false;
    return this.#access.transact(async (transaction) => {
      const { rows } = await transaction.run(
        `SELECT cleaner IS NULL OR cleaner = ? OR cleaner_until < ${nowSql} AS mine FROM ${t.box}
         WHERE number = ? FOR UPDATE`,
        [this.#cleaner, this.#box],
      );
      if (Number(rows[0]?.mine) !== 1) return false;
      await transaction.run(`UPDATE ${t.box} SET cleaner = ?, cleaner_until = ${nowSql} + ? WHERE number = ?`, [
        this.#cleaner,
        storedTime(leaseMs),
        this.#box,
      ]);
      return true;
    });
  }

  async end(): Promise<void> {
    const { t } = this.#access;
    await this.#write(`UPDATE ${t.box} SET cleaner = NULL WHERE number = ? AND cleaner = ?`, [
      this.#box,
      this.#cleaner,
    ]);
  }

  /** Before ids are deleted: a message that old is refused from now on, by every process. */
  async announce(): Promise<void> {
    const { t, runtime } = this.#access;
    await this.#write(
      `UPDATE ${t.box} SET forgotten_until = GREATEST(forgotten_until, ${nowSql} - ${this.#kept}) WHERE number = ?`,
      [this.#box],
    );
    await sleep(runtime, deleteAfterMs, this.#options.signal);
  }

  async nextSent(): Promise<PurgeBatch | undefined> {
    const { t } = this.#access;
    const { archive } = this.#options;
    const found = await this.#read(
      `SELECT number, updated_at, bytes FROM ${t.done} FORCE INDEX (sent)
       WHERE box = ? AND updated_at >= ${this.#after} AND updated_at <= ${nowSql} - ${this.#kept}
       ORDER BY updated_at LIMIT ${batch}`,
      [this.#box],
    );
    let bytes = 0;
    const taken = found.filter((row) => {
      const fits = archive === undefined || bytes < mostArchivedBytes;
      bytes += Number(row.bytes);
      return fits;
    });
    const last = taken.at(-1);
    if (last === undefined) return undefined;
    const numbers = taken.map(({ number }) => Number(number));
    const messages = archive === undefined ? {} : { messages: await this.#archived(numbers) };
    const sql = `DELETE FROM ${t.done} USING ${t.done} FORCE INDEX (PRIMARY) WHERE number IN (?)`;
    return { ...messages, remove: () => this.#remove(sql, [numbers], last.updated_at) };
  }

  async #archived(numbers: readonly number[]): Promise<readonly ArchivedMessage[]> {
    const rows = await this.#read(
      `SELECT position, attempts, created_at, updated_at, ${messageColumns}
       FROM ${this.#access.t.done} FORCE INDEX (PRIMARY) WHERE number IN (?)`,
      [numbers],
    );
    return rows.map((record) => ({
      message: messageOf(record).message,
      position: Number(record.position),
      attempts: Number(record.attempts),
      createdAt: new Date(msOf(record.created_at)),
      publishedAt: new Date(msOf(record.updated_at)),
    }));
  }

  async nextHandled(): Promise<PurgeBatch | undefined> {
    const { t } = this.#access;
    const found = await this.#read(
      `SELECT remembered, since FROM ${t.handled} FORCE INDEX (since)
       WHERE box = ? AND since >= ${this.#after} AND since < ${nowSql} - ${this.#kept} ORDER BY since LIMIT ${batch}`,
      [this.#box],
    );
    const last = found.at(-1);
    if (last === undefined) return undefined;
    const ids = found.map(({ remembered }) => remembered);
    const sql = `DELETE FROM ${t.handled} USING ${t.handled} FORCE INDEX (PRIMARY)
      WHERE box = ? AND remembered IN (?)`;
    return { remove: () => this.#remove(sql, [this.#box, ids], last.since) };
  }

  async #read(sql: string, params: readonly unknown[]) {
    return (await this.#access.read((session) => session.run(sql, params))).rows;
  }

  #write(sql: string, params: readonly unknown[]): Promise<number> {
    return this.#access.transact(async (transaction) => (await transaction.run(sql, params)).count);
  }

  async #remove(sql: string, params: readonly unknown[], last: unknown): Promise<number> {
    const removed = await this.#write(sql, params);
    this.#after = String(last);
    return removed;
  }
}
