import type { Pool as MysqlPool } from "mysql2/promise";
import type { ClientBase, Pool } from "pg";
import { ConfigError } from "../errors.js";
import { checkOptions, text } from "../options.js";
import type { Store } from "../store.js";
import type { MemoryTransaction } from "../stores/memory/memory-transaction.js";
import type { MysqlStore } from "../stores/mysql/mysql-store.js";
import type { PostgresStore } from "../stores/postgres/postgres-store.js";
import type { SqliteDatabase } from "../stores/sqlite/sqlite-database.js";
import type { SqliteStore } from "../stores/sqlite/sqlite-store.js";
import type { Mysql2Transaction } from "../transactions/mysql2.js";
import { loadDriver } from "./load-driver.js";
import { unsupportedUrl } from "./unsupported-url.js";

/** Options of `connectStore`. */
export interface ConnectStoreOptions {
  /** The schema of Postbox's tables on PostgreSQL and PGlite. No effect on others. Defaults to "postbox". */
  readonly schema?: string;
}

/** A store made from a URL. `close` ends the connections that it opened. */
export type ConnectedStore =
  | ({
      readonly kind: "postgres";
      readonly store: PostgresStore<ClientBase>;
      readonly pool: Pool;
    } & Closes)
  | ({
      readonly kind: "mysql";
      readonly store: MysqlStore<Mysql2Transaction>;
      readonly pool: MysqlPool;
    } & Closes)
  | ({ readonly kind: "sqlite"; readonly store: SqliteStore } & Closes)
  | ({ readonly kind: "memory"; readonly store: Store<MemoryTransaction> } & Closes);

interface Closes {
  close(): Promise<void>;
  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

function closing(close: () => Promise<void>): Closes {
  return { close, [Symbol.asyncDispose]: close };
}

/**
 * Makes a store from a URL, and loads only the driver that the URL needs:
 *
 * - `postgres://user@host/database`: PostgreSQL, through `pg`
 * - `pglite:` or `pglite:./folder`: PostgreSQL inside of this process, in memory or in a folder, through PGlite
 * - `mysql://user@host/database` or `mariadb://…`: MySQL, MariaDB or TiDB, through `mysql2`
 * - `sqlite:./file.db` or `sqlite:///folder/file.db`: a file of SQLite, through `better-sqlite3`, `libsql` or
 *   `node:sqlite`, the first that is installed
 * - `memory:`: in this process only
 *
 * Except for SQLite, it opens no connection. It creates no tables: call `store.migrate()`.
 *
 * @example
 * ```ts
 * await using database = await connectStore("postgres://localhost/shop");
 * await database.store.migrate();
 * ```
 */
export async function connectStore(url: string, options: ConnectStoreOptions = {}): Promise<ConnectedStore> {
  checkOptions("connectStore", options, { schema: text });
  switch (typeof url === "string" && /^[a-z]+(?=:)/i.exec(url)?.[0].toLowerCase()) {
    case "postgres":
    case "postgresql":
      return connectPostgres(url, options);
    case "pglite":
      return connectPglite(url.slice("pglite:".length), options);
    case "mysql":
    case "mariadb":
      return connectMysql(url.replace(/^mariadb:/i, "mysql:"));
    case "sqlite":
      return connectSqlite(url.replace(/^sqlite:(\/\/)?/i, ""));
    case "memory": {
      const { memoryStore } = await import("../stores/memory/memory-store.js");
      return { kind: "memory", store: memoryStore(), ...closing(async () => {}) };
    }
    default:
      throw unsupportedUrl("store", url, "postgres://…, pglite:…, mysql://…, sqlite:… or memory:");
  }
}

async function connectPostgres(url: string, options: ConnectStoreOptions): Promise<ConnectedStore> {
  const { default: pg } = await loadDriver("pg", () => import("pg"));
  const { postgresStore } = await import("../stores/postgres/postgres-store.js");
  const pool = new pg.Pool({ connectionString: url });
  return { kind: "postgres", store: postgresStore({ pool, ...options }), pool, ...closing(() => pool.end()) };
}

async function connectMysql(uri: string): Promise<ConnectedStore> {
  const { createPool } = await loadDriver("mysql2", () => import("mysql2/promise"));
  const { mysqlStore } = await import("../stores/mysql/mysql-store.js");
  const pool = createPool({ uri });
  return { kind: "mysql", store: mysqlStore({ pool }), pool, ...closing(() => pool.end()) };
}

async function connectSqlite(file: string): Promise<ConnectedStore> {
  const { sqliteStore } = await import("../stores/sqlite/sqlite-store.js");
  const open = await sqliteDriver();
  const store = sqliteStore({ open: () => open(file) });
  return { kind: "sqlite", store, ...closing(async () => store.close()) };
}

/** The first driver that is installed. All of them have the same shape. */
async function sqliteDriver(): Promise<(file: string) => SqliteDatabase> {
  const failures: unknown[] = [];
  for (const name of ["better-sqlite3", "libsql", "node:sqlite"]) {
    try {
      const driver = await import(name);
      const Database = driver.DatabaseSync ?? driver.default;
      return (file) => new Database(file);
    } catch (error) {
      failures.push(error);
    }
  }
  const text = "cannot load a driver of SQLite; install one beside postbox: npm install better-sqlite3";
  throw new ConfigError("driver-missing", text, { cause: new AggregateError(failures) });
}

async function connectPglite(folder: string, options: ConnectStoreOptions): Promise<ConnectedStore> {
  const { default: pg } = await loadDriver("pg", () => import("pg"));
  const { PGlite } = await loadDriver("@electric-sql/pglite", () => import("@electric-sql/pglite"));
  const { createPgConfig } = await import("@electric-sql/pglite/node-postgres");
  const { postgresStore } = await import("../stores/postgres/postgres-store.js");
  const database = await PGlite.create(folder === "" ? "memory://" : folder);
  // PGlite has a single connection, which everything shares.
  const pool = new pg.Pool({ ...createPgConfig(database), max: 1 } as ConstructorParameters<typeof pg.Pool>[0]);
  return {
    kind: "postgres",
    store: postgresStore({ pool, ...options }),
    pool,
    ...closing(async () => {
      await pool.end();
      await database.close();
    }),
  };
}
