import { statfsSync } from "node:fs";
import { dirname } from "node:path";
import { ConfigError, PostboxError } from "../../errors.js";

/**
 * The parts of a connection that the store needs, as `better-sqlite3`, `libsql` and `node:sqlite` have them. All of its
 * calls are synchronous.
 */
export interface SqliteDatabase {
  // biome-ignore lint/suspicious/noExplicitAny: parameters and rows are typed by each driver in its own way.
  prepare(sql: string): any;
  exec(sql: string): unknown;
  close(): unknown;
}

interface Statement {
  all(...params: readonly SqliteValue[]): unknown[];
  run(...params: readonly SqliteValue[]): { readonly changes: number | bigint };
  iterate(...params: readonly SqliteValue[]): Iterable<unknown>;
}

export type SqliteValue = string | number | Uint8Array | null;

/** A connection with prepared statements. */
export class Connection {
  readonly database: SqliteDatabase;
  readonly #statements = new Map<string, Statement>();
  #closed = false;

  constructor(database: SqliteDatabase) {
    this.database = database;
  }

  all<R>(sql: string, ...params: readonly SqliteValue[]): R[] {
    return this.#statement(sql).all(...params) as R[];
  }

  first<R>(sql: string, ...params: readonly SqliteValue[]): R | undefined {
    return this.all<R>(sql, ...params)[0];
  }

  /** Reads row by row. Run no other statement before the loop has ended. */
  each<R>(sql: string, ...params: readonly SqliteValue[]): Iterable<R> {
    return this.#statement(sql).iterate(...params) as Iterable<R>;
  }

  /** Returns how many rows it has changed. */
  run(sql: string, ...params: readonly SqliteValue[]): number {
    return Number(this.#statement(sql).run(...params).changes);
  }

  exec(sql: string): void {
    this.#requireOpen();
    this.database.exec(sql);
  }

  get inTransaction(): boolean {
    return !this.#closed && isInTransaction(this.database);
  }

  /** Rolls back an open transaction. Without that, some drivers keep its lock until the process ends. */
  close(): void {
    if (this.#closed) return;
    if (this.inTransaction) this.database.exec("ROLLBACK");
    this.#closed = true;
    this.#statements.clear();
    this.database.close();
  }

  /** Some drivers end the process if a closed connection is used. */
  #requireOpen(): void {
    if (this.#closed)
      throw new PostboxError("store-closed", "the store is closed; close it after everything that uses it");
  }

  #statement(sql: string): Statement {
    this.#requireOpen();
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const statement = this.database.prepare(sql) as Statement;
    this.#statements.set(sql, statement);
    return statement;
  }
}

/** `node:sqlite` has another name for it. */
export function isInTransaction(database: object): boolean {
  const { inTransaction, isTransaction } = database as { inTransaction?: unknown; isTransaction?: unknown };
  return inTransaction === true || isTransaction === true;
}

/** The bytes of a BLOB. Drivers return them as a Buffer, a Uint8Array or an ArrayBuffer. */
export function bytesIn(value: unknown): Uint8Array | null {
  if (value === null || value === undefined) return null;
  return value instanceof ArrayBuffer ? new Uint8Array(value) : (value as Uint8Array);
}

/** Whether another connection holds the lock that a statement needs. Drivers name the result code differently. */
export function isBusy(error: unknown): boolean {
  return resultCode(error) === busy;
}

const [perm, busy, readonly, ioError, full, cannotOpen, auth, notADatabase] = [3, 5, 8, 10, 13, 14, 23, 26];
const names: Readonly<Record<string, number>> = {
  PERM: perm,
  BUSY: busy,
  READONLY: readonly,
  IOERR: ioError,
  FULL: full,
  CANTOPEN: cannotOpen,
  AUTH: auth,
  NOTADB: notADatabase,
};

/** SQLite's primary result code; undefined for other errors. */
function resultCode(error: unknown): number | undefined {
  const { code, errcode } = (error ?? {}) as { readonly code?: unknown; readonly errcode?: unknown };
  if (typeof errcode === "number") return errcode & 0xff;
  const name = typeof code === "string" ? /^SQLITE_([A-Z]+)/.exec(code)?.[1] : undefined;
  return name === undefined ? undefined : names[name];
}

/** Whether the file could not be read or written, whatever the statement was. */
export function isUnreachable(error: unknown): boolean {
  return [busy, ioError, full, cannotOpen].includes(resultCode(error) ?? -1);
}

/** Whether the file refuses all access: its rights are insufficient, or it is not a database. */
export function isRefused(error: unknown): boolean {
  return [perm, readonly, auth, notADatabase].includes(resultCode(error) ?? -1);
}

/** The file of a connection; empty for a database in memory. */
export function fileOf(connection: Connection): string {
  const list = connection.all<{ readonly name: string; readonly file: string | null }>("PRAGMA database_list");
  return list.find(({ name }) => name === "main")?.file ?? "";
}

/**
 * File systems over a network: NFS, SMB, CIFS, SMB 2 and 9P. Their locks are unreliable, and a WAL needs memory that
 * all processes share.
 */
const networks: ReadonlySet<number> = new Set([0x6969, 0x517b, 0xff534d42, 0xfe534d42, 0x01021997]);

/** Throws for a database that cannot keep the promises: in memory, or on a file system over a network. */
export function requireLocalFile(file: string): void {
  if (file === "") {
    throw new ConfigError(
      "option-invalid",
      "sqliteStore: 'open' opens a database in memory, which no second connection can share; open a file, " +
        "or use memoryStore() of postbox/memory",
      { path: "open" },
    );
  }
  if (!networks.has(statfsSync(dirname(file)).type)) return;
  throw new ConfigError(
    "option-invalid",
    `sqliteStore: ${file} is on a file system over a network, where the locks of SQLite are unreliable; ` +
      "use a local disk",
    { path: "open" },
  );
}
