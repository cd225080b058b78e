import { entityKind, type SQL, sql } from "drizzle-orm";
import type { Dialect, IsolationLevel, TransactionLibrary } from "../store.js";
import { defineTransactions } from "./define-transactions.js";
import { type ClientState, isClient, whyNotOpen } from "./open-transaction.js";
import type { PostgresJsDatabase, PostgresJsTransaction } from "./postgres-js.js";
import { beginSafely } from "./safe-postgres-js.js";
import { requireServed } from "./served-dialect.js";
import { type ClientParts, closeClient } from "./session.js";

/**
 * The part of a Drizzle transaction that Postbox uses. Transactions of `drizzle-orm/node-postgres` and
 * `drizzle-orm/postgres-js` have it.
 */
export interface DrizzleTransaction {
  execute(query: SQL): PromiseLike<DrizzleResult>;
  rollback(): never;
}

/** The first is the result of `pg`. Postgres.js returns an array with a `count`. */
type DrizzleResult =
  | { readonly rows: Record<string, unknown>[]; readonly rowCount: number | null }
  | (readonly Record<string, unknown>[] & { readonly count: number });

/** The part of a Drizzle database that Postbox uses. */
export interface DrizzleDatabase<Tx extends DrizzleTransaction> {
  transaction<R>(work: (tx: Tx) => Promise<R>, config?: { isolationLevel?: IsolationLevel }): Promise<R>;
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

/** The database itself if Postbox has a store for it; otherwise a text that the compiler shows. */
type Served<Db> =
  "postgres" extends DialectOf<Db>
    ? Db extends AnyDrizzleDatabase
      ? Db
      : AnyDrizzleDatabase
    : `this database has the dialect ${DialectOf<Db>}, and Postbox has no store for ${DialectOf<Db>} yet: ${Advice}`;

type Advice = "use one on postgres";

// biome-ignore lint/suspicious/noExplicitAny: its transactions may be of any type.
type AnyDrizzleDatabase = DrizzleDatabase<any>;

type TransactionOf<Db> = Db extends DrizzleDatabase<infer Tx> ? Tx : never;

/**
 * Transactions of Drizzle on PostgreSQL, with `pg` or Postgres.js. The handle is the `tx` that `db.transaction` passes
 * to its function; nested transactions work too.
 *
 * @example
 * ```ts
 * const db = drizzleOf(pool); // drizzle(pool) of drizzle-orm/node-postgres
 * const store = postgresStore({ pool, transactions: drizzle(db) });
 * await db.transaction((tx) => createOutbox(store, { source: "/orders" }).in(tx).publish(OrderPlaced, order));
 * ```
 */
export function drizzle<Db>(db: Served<Db>): TransactionLibrary<TransactionOf<Db>, "postgres"> {
  const { dialect } = (db ?? {}) as { readonly dialect?: { readonly constructor: { readonly [entityKind]?: string } } };
  requireServed("drizzle", dialect?.constructor[entityKind]);
  return transactionsOf(db as DrizzleDatabase<TransactionOf<Db>>);
}

function transactionsOf<Tx extends DrizzleTransaction>(db: DrizzleDatabase<Tx>): TransactionLibrary<Tx, "postgres"> {
  return defineTransactions<Tx>({
    name: "drizzle",
    rightCall:
      "pass the tx of `db.transaction(async (tx) => …)` or of store.transaction((tx) => …), while its function runs",
    maxTransactions: () => (db as { readonly session?: DrizzleSession<Tx> }).session?.client?.options?.max,

    look(tx) {
      // Only transactions have `rollback`. `db` has the same query methods, but each of its statements commits by
      // itself.
      const { rollback, execute, session } = (tx ?? {}) as Partial<Record<string, unknown>>;
      if (typeof rollback !== "function" || typeof execute !== "function" || session === undefined) {
        return { not: "it is not a transaction of Drizzle, and db runs each statement outside of your transaction" };
      }
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
      const result = await tx.execute(withParams(text, params));
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
