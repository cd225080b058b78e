import { ConfigError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import { requireBox } from "../box-names.js";
import { requireSchema } from "./schema.js";
import { Connection, fileOf, requireLocalFile, type SqliteDatabase } from "./sqlite-database.js";
import { BoxTransaction } from "./sqlite-rows.js";
import { Writers } from "./sqlite-writer.js";

/** How a store reads and writes its file, outside of users' own transactions. */
export class SqliteAccess {
  readonly runtime: Runtime;
  readonly writers: Writers;
  readonly file: string;
  /** For reads, and for the transactions of single verbs. */
  readonly reader: Connection;
  /** For the transactions of `store.transaction`, which may take long: reads go on meanwhile. */
  readonly user: Connection;
  /** The numbers of boxes never change. */
  readonly #boxes = new Map<string, number>();
  readonly #open: () => SqliteDatabase;
  #looker: Connection | undefined;
  /** Resolves when the last look in the queue has ended. */
  #lastLook: Promise<void> = Promise.resolve();
  #hasSchema = false;

  constructor(open: () => SqliteDatabase, runtime: Runtime, lockTimeoutMs: number) {
    this.runtime = runtime;
    this.#open = open;
    this.reader = connect(open);
    this.file = fileOf(this.reader);
    requireLocalFile(this.file);
    this.user = connect(open);
    const other = fileOf(this.user);
    if (other !== this.file) {
      const text = `sqliteStore: 'open' opened ${this.file} and then ${other}; it must open the same file each time`;
      throw new ConfigError("option-invalid", text, { path: "open" });
    }
    this.writers = new Writers(this.file, runtime, lockTimeoutMs);
  }

  now(): number {
    return Math.floor(this.runtime.now());
  }

  /** Runs all reads of `look` on one snapshot. Waits for no writer. */
  read<R>(look: () => R): R {
    // Each transaction on this connection begins and ends within one synchronous call, so none is open here.
    try {
      this.reader.exec("BEGIN");
      this.requireSchema(this.reader);
      return look();
    } catch (error) {
      throw this.writers.explained(error);
    } finally {
      if (this.reader.inTransaction) this.reader.exec("ROLLBACK");
    }
  }

  /** The same for reads that take several steps, on a connection of their own. They take turns. */
  async look<R>(work: (connection: Connection) => Promise<R>): Promise<R> {
    const before = this.#lastLook;
    let endTurn = () => {};
    this.#lastLook = new Promise((resolve) => {
      endTurn = resolve;
    });
    await before;
    try {
      this.#looker ??= connect(this.#open);
      this.#looker.exec("BEGIN");
      return await work(this.#looker);
    } catch (error) {
      throw this.writers.explained(error);
    } finally {
      if (this.#looker?.inTransaction) this.#looker.exec("ROLLBACK");
      endTurn();
    }
  }

  /** Changes a box in a transaction of its own. The box is created if it was never used. */
  write<R>(box: string, work: (box: BoxTransaction) => R, signal?: AbortSignal): Promise<R> {
    return this.change((connection) => work(this.transactionOn(connection, box)), signal);
  }

  change<R>(work: (connection: Connection) => R, signal?: AbortSignal): Promise<R> {
    const inTransaction = () => {
      this.requireSchema(this.reader);
      return work(this.reader);
    };
    return this.writers.write(this.reader, inTransaction, signal);
  }

  /** The rows of a box within an open transaction on a connection. */
  transactionOn(connection: Connection, box: string): BoxTransaction {
    requireBox(box);
    return new BoxTransaction(connection, this.#createdBox(connection, box), this.now());
  }

  #createdBox(connection: Connection, box: string): number {
    const known = this.#boxes.get(box);
    if (known !== undefined) return known;
    // Not stored in #boxes: the transaction may roll back.
    connection.run("INSERT INTO postbox_box (name) VALUES (?) ON CONFLICT (name) DO NOTHING", box);
    return Number(numberOf(connection, box));
  }

  /** The number of a box, as the last commit has it; undefined if it was never used. */
  boxNumber(box: string): number | undefined {
    requireBox(box);
    const known = this.#boxes.get(box) ?? numberOf(this.reader, box);
    if (known !== undefined) this.#boxes.set(box, known);
    return known;
  }

  /** The number of a box that an operator names. Throws if it was never used. */
  usedBox(box: string): number {
    const number = this.boxNumber(box);
    if (number !== undefined) return number;
    const names = this.boxNames().join(", ");
    const text = `there is no box '${box}', since no such consumer has run; the boxes are ${names}`;
    throw new ConfigError("option-invalid", text, { path: "box" });
  }

  boxNames(): readonly string[] {
    return this.reader
      .all<{ readonly name: string }>("SELECT name FROM postbox_box ORDER BY number")
      .map(({ name }) => name);
  }

  pausedAt(box: number): number | undefined {
    const sql = "SELECT paused_at FROM postbox_box WHERE number = ?";
    return this.reader.first<{ readonly paused_at: number | null }>(sql, box)?.paused_at ?? undefined;
  }

  /** The highest position that was ever drawn. */
  drawn(): number {
    const sql = "SELECT seq FROM sqlite_sequence WHERE name = 'postbox_message'";
    return Number(this.reader.first<{ readonly seq: number }>(sql)?.seq ?? 0);
  }

  requireSchema(connection: Connection): void {
    if (this.#hasSchema) return;
    requireSchema(connection, this.file);
    this.#hasSchema = true;
  }

  close(): void {
    this.reader.close();
    this.user.close();
    this.#looker?.close();
  }
}

function connect(open: () => SqliteDatabase): Connection {
  const connection = new Connection(open());
  // Waiting would block the event loop, and with it the transaction that is waited for.
  connection.exec("PRAGMA busy_timeout = 0");
  // FULL: what was committed survives a power failure.
  connection.exec("PRAGMA synchronous = FULL");
  connection.exec("PRAGMA foreign_keys = ON");
  return connection;
}

function numberOf(connection: Connection, box: string): number | undefined {
  const sql = "SELECT number FROM postbox_box WHERE name = ?";
  return connection.first<{ readonly number: number }>(sql, box)?.number;
}
