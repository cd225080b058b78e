import { entityKind, type SQL, sql } from "drizzle-orm";
import type { Dialect, IsolationLevel, TransactionLibrary } from "../store.js";
import { defineTransactions } from "./define-transactions.js";
import { type ClientState, isClient, whyNotOpen } from "./open-transaction.js";
import type { PostgresJsDatabase, PostgresJsTransaction } from "./postgres-js.js";
import { beginSafely } from "./safe-postgres-js.js";
import { requireServed } from "./served-dialect.js";
import { type ClientParts, closeClient } from "./session.js";

/** What is needed of a Drizzle transaction; those of `drizzle-orm/node-postgres` and `drizzle-orm/postgres-js` have it. */
export interface DrizzleTransaction {
  execute(query: SQL): PromiseLike<DrizzleResult>;
  rollback(): never;
}

/** That of `pg`, or that of Postgres.js, which is an array. */
type DrizzleResult =
  | { readonly rows: Record<string, unknown>[]; readonly rowCount: number | null }
  | (readonly Record<string, unknown>[] & { readonly count: number });

/** What is needed of a Drizzle database. */
export interface DrizzleDatabase<Tx extends DrizzleTransaction> {
  transaction<R>(work: (tx: Tx) => Promise<R>, config?: { isolationLevel?: IsolationLevel }): Promise<R>;
}

/**
 * Which dialect a database has by its type. What Drizzle has for one dialect only tells; what has none of it may be any. Not by its
 * classes, since those of MySQL need the types of `mysql2`, which need not be installed.
 */
type DialectOf<Db> = Db extends { run: unknown; all: unknown; values: unknown }
  ? "sqlite"
  : Db extends { selectDistinctOn: unknown }
    ? "postgres"
    : Db extends { selectDistinct: unknown }
      ? "mysql"
      : Dialect;

/** A database that can be served; of any other, what the compiler says instead. */
type Served<Db> =
  "postgres" extends DialectOf<Db>
    ? Db extends AnyDrizzleDatabase
      ? Db
      : AnyDrizzleDatabase
    : `this database has the dialect ${DialectOf<Db>}, and Postbox has no store for ${DialectOf<Db>} yet: use one on postgres`;

// biome-ignore lint/suspicious/noExplicitAny: its transactions may be of any type.
type AnyDrizzleDatabase = DrizzleDatabase<any>;

type TransactionOf<Db> = Db extends DrizzleDatabase<infer Tx> ? Tx : never;

/**
 * Transactions of Drizzle, today on `pg` or Postgres.js only: the handle is what `db.transaction` hands to its function, also that of a
 * nested one.
 *
 * ```ts
 * const store = postgresStore({ pool, transactions: drizzle(db) });
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
      // Only a transaction can be rolled back; `db` itself has the same queries, but each commits on its own.
      const { rollback, execute, session } = (tx ?? {}) as Partial<Record<string, unknown>>;
      if (typeof rollback !== "function" || typeof execute !== "function" || session === undefined) {
        return { not: "it is none of Drizzle; db runs each statement outside of yours" };
      }
      const client = clientOf(tx);
      return client === undefined ? "perhaps" : (whyNotOpen(client) ?? "open");
    },

    async query(tx, text, params) {
      const client = clientOf(tx);
      if (client !== undefined) {
        // Its own call waits before it sends: what was open when looked at may be rolled back by then.
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
      // Its own call never gives back a client whose BEGIN fails, as on a connection that was lost while it was idle.
      const client = await session.pool.connect();
      // Nobody listens otherwise: a connection that breaks between two statements would end the process.
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

/** What Drizzle runs statements on. */
interface DrizzleSession<Tx extends DrizzleTransaction> extends DrizzleDatabase<Tx> {
  /** A pool of `pg`, or Postgres.js: both say in the same place how large they are. */
  readonly client?: { readonly options?: { readonly max?: number } };
  readonly dialect?: unknown;
  readonly schema?: unknown;
  readonly options?: unknown;
}

/** The session of a database on a pool of `pg`, and how to make the same on one of its clients. Undefined for anything else. */
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

/** The session of a database on Postgres.js, with transactions that are safe from its faults. Undefined for anything else. */
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

/** Drizzle takes raw text without parameters only, so each `$n` becomes one of its own. For our statements only. */
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

/** The `pg` client under a transaction. Drizzle keeps it to itself, so everything here works without it as well. */
function clientOf(tx: unknown): DrizzleClient | undefined {
  const client = (tx as { readonly session?: { readonly client?: unknown } }).session?.client;
  return isClient(client) ? (client as DrizzleClient) : undefined;
}

function ignore(): void {}
