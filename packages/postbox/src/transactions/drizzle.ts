import { entityKind, type SQL, sql } from "drizzle-orm";
import type { Dialect, TransactionLibrary } from "../store.js";
import { defineTransactions as onMysql } from "./define-mysql-transactions.js";
import { defineTransactions } from "./define-transactions.js";
import { isSound, mysqlConnectionOf } from "./mysql-connection.js";
import { type ClientState, isClient, whyNotOpen } from "./open-transaction.js";
import type { PostgresJsDatabase, PostgresJsTransaction } from "./postgres-js.js";
import { beginSafely } from "./safe-postgres-js.js";
import { servedDialect } from "./served-dialect.js";
import { type ClientParts, closeClient } from "./session.js";

/**
 * The part of a Drizzle transaction that Postbox uses. Transactions of `drizzle-orm/node-postgres`,
 * `drizzle-orm/postgres-js` and `drizzle-orm/mysql2` have it.
 */
export interface DrizzleTransaction {
  execute(query: SQL): PromiseLike<unknown>;
  rollback(): never;
}

/** The first is the result of `pg`. Postgres.js returns an array with a `count`. */
type DrizzleResult =
  | { readonly rows: Record<string, unknown>[]; readonly rowCount: number | null }
  | (readonly Record<string, unknown>[] & { readonly count: number });

/** The part of a Drizzle database that Postbox uses. */
export interface DrizzleDatabase<Tx extends DrizzleTransaction> {
  // biome-ignore lint/suspicious/noExplicitAny: the databases of each dialect declare their own type for the levels.
  transaction<R>(work: (tx: Tx) => Promise<R>, config?: any): Promise<R>;
}

/**
 * The dialect of a database, from the members that Drizzle has for one dialect only. Without such a member, any dialect
 * is possible. Drizzle's classes would tell as well, but those of MySQL need the types of `mysql2`, an optional
 * dependency.
 */
type DialectOf<Db> = Db extends { run: unknown; all: unknown; values: unknown }
  ? "sqlite"
  : Db extends { selectDistinctOn: unknown }
    ? "postgres"
    : Db extends { selectDistinct: unknown }
      ? "mysql"
      : Dialect;

/** The dialects that `drizzle` serves. */
type ServedOn = "postgres" | "mysql";

/** The database itself if it is served; otherwise a text that the compiler shows. */
type Served<Db> = DialectOf<Db> & ServedOn extends never
  ? `this database has the dialect ${DialectOf<Db>}, and Postbox serves Drizzle on postgres and mysql only: ${Advice}`
  : Db extends AnyDrizzleDatabase
    ? Db
    : AnyDrizzleDatabase;

type Advice = "use one of these";

/** The dialect of the transactions; if the type does not tell it, a store checks it when it is made. */
type LibraryDialect<Db> = Dialect extends DialectOf<Db> ? never : DialectOf<Db> & ServedOn;

// biome-ignore lint/suspicious/noExplicitAny: its transactions may be of any type.
type AnyDrizzleDatabase = DrizzleDatabase<any>;

type TransactionOf<Db> = Db extends DrizzleDatabase<infer Tx> ? Tx : never;

/**
 * Transactions of Drizzle on PostgreSQL, with `pg` or Postgres.js, or on MySQL, with `mysql2`. The handle is the `tx`
 * that `db.transaction` passes to its function; nested transactions work too.
 *
 * @example
 * ```ts
 * const db = drizzleOf(pool); // drizzle(pool) of drizzle-orm/node-postgres
 * const store = postgresStore({ pool, transactions: drizzle(db) });
 * await db.transaction((tx) => createOutbox(store, { source: "/orders" }).in(tx).publish(OrderPlaced, order));
 * ```
 */
export function drizzle<Db>(db: Served<Db>): TransactionLibrary<TransactionOf<Db>, LibraryDialect<Db>> {
  const { dialect } = (db ?? {}) as { readonly dialect?: { readonly constructor: { readonly [entityKind]?: string } } };
  const found = servedDialect("drizzle", dialect?.constructor[entityKind], ["postgres", "mysql"]);
  const library =
    found === "mysql"
      ? mysqlTransactionsOf(db as DrizzleDatabase<TransactionOf<Db>>)
      : transactionsOf(db as DrizzleDatabase<TransactionOf<Db>>);
  return library as TransactionLibrary<TransactionOf<Db>, LibraryDialect<Db>>;
}

/** A Drizzle transaction, or what is passed in its place. */
const notDrizzle = {
  not: "it is not a transaction of Drizzle, and db runs each statement outside of your transaction",
} as const;
const rightCall =
  "pass the tx of `db.transaction(async (tx) => …)` or of store.transaction((tx) => …), while its function runs";

/** Only transactions have `rollback`. `db` has the same query methods, but each of its statements commits by itself. */
function isTransaction(tx: unknown): boolean {
  const { rollback, execute, session } = (tx ?? {}) as Partial<Record<string, unknown>>;
  return typeof rollback === "function" && typeof execute === "function" && session !== undefined;
}

interface MysqlSession<Tx extends DrizzleTransaction> extends DrizzleDatabase<Tx> {
  readonly client?: {
    readonly pool?: { readonly config?: { readonly connectionLimit?: number } };
    getConnection?(): Promise<{ release(): void; destroy(): void }>;
  };
  readonly dialect?: unknown;
  readonly schema?: unknown;
  readonly options?: unknown;
}

function mysqlTransactionsOf<Tx extends DrizzleTransaction>(db: DrizzleDatabase<Tx>): TransactionLibrary<Tx, "mysql"> {
  const { session } = db as { readonly session?: MysqlSession<Tx> };
  return onMysql<Tx>({
    name: "drizzle",
    rightCall,
    maxTransactions: () => session?.client?.pool?.config?.connectionLimit,
    look: (tx) => (isTransaction(tx) ? "perhaps" : notDrizzle),
    connection: (tx) => (tx as { readonly session?: { readonly client?: unknown } }).session?.client,
    async query(tx, text, params) {
      const [result] = (await tx.execute(withMarks(text, params))) as unknown as [unknown];
      if (Array.isArray(result)) return { rows: result, rowCount: result.length };
      return { rows: [], rowCount: Number((result as { readonly affectedRows?: unknown }).affectedRows ?? 0) };
    },
    async begin(work, { isolation, signal, connected }) {
      const config = isolation && { isolationLevel: isolation };
      if (session?.dialect === undefined || session.client?.getConnection === undefined) {
        return db.transaction(work, config);
      }
      // Drizzle's `transaction` leaks a connection whose BEGIN fails, for example since it was lost while idle.
      const handle = await session.client.getConnection();
      const connection = mysqlConnectionOf(handle);
      // The pool listens to a first error only. A later one would end the process.
      connection?.on("error", ignore);
      connected?.(() => handle.destroy());
      const Session = session.constructor as new (...args: unknown[]) => MysqlSession<Tx>;
      const own = new Session(handle, session.dialect, session.schema, session.options);
      try {
        return await own.transaction(work, config);
      } finally {
        connection?.removeListener("error", ignore);
        if (connection !== undefined && isSound(connection) && signal?.aborted !== true) handle.release();
        else handle.destroy();
      }
    },
  });
}

function transactionsOf<Tx extends DrizzleTransaction>(db: DrizzleDatabase<Tx>): TransactionLibrary<Tx, "postgres"> {
  return defineTransactions<Tx>({
    name: "drizzle",
    rightCall,
    maxTransactions: () => (db as { readonly session?: DrizzleSession<Tx> }).session?.client?.options?.max,

    look(tx) {
      if (!isTransaction(tx)) return notDrizzle;
      const client = clientOf(tx);
      return client === undefined ? "perhaps" : (whyNotOpen(client) ?? "open");
    },

    async query(tx, text, params) {
      const client = clientOf(tx);
      if (client !== undefined) {
        // `tx.execute` waits before it sends, and the transaction may be rolled back by then.
        const { rows, rowCount } = await client.query(text, [...params]);
        return { rows, rowCount: rowCount ?? 0 };
      }
      const result = (await tx.execute(withParams(text, params))) as DrizzleResult;
      if ("count" in result) return { rows: result, rowCount: result.count };
      return { rows: result.rows, rowCount: result.rowCount ?? 0 };
    },

    client: clientOf,

    async begin(work, { isolation, signal, connected }) {
      const config = isolation && { isolationLevel: isolation };
      const session = sessionOnPool<Tx>(db);
      if (session === undefined) return (safeSession<Tx>(db) ?? db).transaction(work, config);
      // Drizzle's `transaction` leaks a client whose BEGIN fails, for example on a connection that was lost while idle.
      const client = await session.pool.connect();
      // Without a listener, a connection that breaks between two statements would end the process.
      client.on("error", ignore);
      connected?.(() => closeClient(client as unknown as ClientParts));
      try {
        return await session.on(client).transaction(work, config);
      } finally {
        client.removeListener("error", ignore);
        client.release(signal?.aborted === true || client.getTransactionStatus() !== "I");
      }
    },
  });
}

interface DrizzlePool {
  connect(): Promise<DrizzleClient & { release(destroy: boolean): void }>;
}

/** What a Drizzle database runs its statements on. */
interface DrizzleSession<Tx extends DrizzleTransaction> extends DrizzleDatabase<Tx> {
  /** A `pg` pool or Postgres.js. Both have their pool size in `options.max`. */
  readonly client?: { readonly options?: { readonly max?: number } };
  readonly dialect?: unknown;
  readonly schema?: unknown;
  readonly options?: unknown;
}

/**
 * For a database on a `pg` pool: the pool, and a function that creates the same session on one client. Otherwise
 * undefined.
 */
function sessionOnPool<Tx extends DrizzleTransaction>(db: unknown) {
  const session = (db as { readonly session?: DrizzleSession<Tx> }).session;
  const pool = session?.client as (Partial<DrizzlePool> & { readonly totalCount?: number }) | undefined;
  if (session?.dialect === undefined || typeof pool?.connect !== "function" || pool.totalCount === undefined) {
    return undefined;
  }
  const Session = session.constructor as new (...args: unknown[]) => DrizzleSession<Tx>;
  return {
    pool: pool as DrizzlePool,
    on: (client: unknown) => new Session(client, session.dialect, session.schema, session.options),
  };
}

/** For a database on Postgres.js: a session whose transactions are protected by `beginSafely`. Otherwise undefined. */
function safeSession<Tx extends DrizzleTransaction>(db: unknown): DrizzleDatabase<Tx> | undefined {
  const session = (db as { readonly session?: DrizzleSession<Tx> }).session;
  const client = session?.client as Partial<PostgresJsDatabase<PostgresJsTransaction>> | undefined;
  if (session?.dialect === undefined || typeof client?.begin !== "function") return undefined;
  const Session = session.constructor as new (...args: unknown[]) => DrizzleSession<Tx>;
  type Begin = (work: (tx: object) => Promise<unknown>) => Promise<unknown>;
  const begin = client.begin.bind(client) as unknown as Begin;
  const safe = { begin: (work: Parameters<Begin>[0]) => beginSafely(begin, work) };
  return new Session(safe, session.dialect, session.schema, session.options);
}

/**
 * Drizzle takes raw SQL without parameters only, so each `$n` becomes a Drizzle parameter. Only for Postbox's own
 * statements: a `$n` inside a literal would be replaced too.
 */
function withParams(text: string, params: readonly unknown[]): SQL {
  const chunks = text
    .split(/(\$\d+)/)
    .map((part) => (/^\$\d+$/.test(part) ? sql`${sql.param(params[Number(part.slice(1)) - 1])}` : sql.raw(part)));
  return sql.join(chunks);
}

/** The same for the `?` of MySQL. */
function withMarks(text: string, params: readonly unknown[]): SQL {
  const parts = text.split("?").map((part) => sql.raw(part));
  const chunks = parts.flatMap((part, index) => (index === 0 ? [part] : [sql`${sql.param(params[index - 1])}`, part]));
  return sql.join(chunks);
}

interface DrizzleClient extends ClientState {
  query(text: string, params: unknown[]): Promise<{ rows: Record<string, unknown>[]; rowCount: number | null }>;
  on(event: "error", listener: () => void): unknown;
  removeListener(event: "error", listener: () => void): unknown;
}

/**
 * The `pg` client under a transaction. It is not in Drizzle's public types, so everything here also works without it.
 */
function clientOf(tx: unknown): DrizzleClient | undefined {
  const client = (tx as { readonly session?: { readonly client?: unknown } }).session?.client;
  return isClient(client) ? (client as DrizzleClient) : undefined;
}

function ignore(): void {}
