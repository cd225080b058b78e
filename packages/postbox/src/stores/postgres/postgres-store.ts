import type { ClientBase, Pool } from "pg";
import { ConfigError } from "../../errors.js";
import type { Health } from "../../health.js";
import { checkOptions, given, object, text } from "../../options.js";
import type { Dialect, Executor, GuardedStatement, Store, TransactionLibrary } from "../../store.js";
import { connectionEnded, isConflict, isConnectionLost } from "../../transactions/connection-lost.js";
import { pgTransactions } from "../../transactions/pg.js";
import { surroundingTransactions } from "../../transactions/surrounding-transaction.js";
import { consumerOf, requireBox } from "../box-names.js";
import { type AppendSql, appendStatement } from "./append-statement.js";
import { boxFinder } from "./box-numbers.js";
import { comparedDatabases } from "./compared-databases.js";
import { keyLocks } from "./key-lock.js";
import { migrationSteps } from "./migrations.js";
import { defaultSchema, outboxNumber, schemaRule } from "./names.js";
import { ownConnections } from "./own-connection.js";
import { poolRule } from "./pool-rule.js";
import { postgresAdmin } from "./postgres-admin.js";
import { postgresBox } from "./postgres-box.js";
import { postgresHealth } from "./postgres-health.js";
import { postgresInbox } from "./postgres-inbox.js";
import type { PostgresHealthOptions, PostgresHealthProblem } from "./postgres-problems.js";
import { type PostgresPurged, type PostgresPurgeOptions, postgresRetention, purgeRules } from "./postgres-retention.js";
import { withReservedConnections } from "./reserved-connection.js";
import { type StatementRunner, statementRunner } from "./run-statement.js";
import { isRefused, schemaCheck, schemaError } from "./schema-check.js";
import { sessionTerminator } from "./terminate-session.js";
import { tickSql } from "./tick-sql.js";
import { appendSql } from "./write-sql.js";

/** Options of `postgresStore`. */
export interface PostgresStoreOptions {
  /**
   * A `pg` pool. You own it: end it after everything that uses the store has stopped. It needs a connection for each
   * handler that runs concurrently, and some for the relay and for your own queries. A relay opens one more connection
   * outside of the pool, to renew its lease even if the pool is exhausted. The store adds an `error` listener, so that
   * an idle connection that breaks does not end the process.
   */
  readonly pool: Pool;
  /**
   * Where a relay opens its own connection for renewals. Set it to the server itself if the pool connects to a pooler
   * in transaction mode. Defaults to the pool's server.
   */
  readonly directUrl?: string;
  /** The schema of the tables. Defaults to "postbox". */
  readonly schema?: string;
}

const rules = { pool: poolRule, directUrl: text, transactions: object, schema: schemaRule };

/** A store on PostgreSQL. */
export interface PostgresStore<Tx> extends Store<Tx> {
  readonly schema: string;
  purge(options: PostgresPurgeOptions): Promise<PostgresPurged>;
  health(options?: PostgresHealthOptions): Promise<Health<PostgresHealthProblem>>;
}

/**
 * A store in PostgreSQL. Without `transactions`, its transactions are those of `pg` on the same pool. With it, they are
 * those of that library, which must use the same database. The first transaction that publishes or handles a message
 * starts a comparison. If the databases differ, everything that uses the store fails with `databases-differ` from then
 * on.
 *
 * It keeps no session state and uses no named statements, so it works through a pooler in transaction mode.
 *
 * @example
 * ```ts
 * const store = postgresStore({ pool });
 * await store.migrate();
 * ```
 */
export function postgresStore(
  options: PostgresStoreOptions & { readonly transactions?: undefined },
): PostgresStore<ClientBase>;
export function postgresStore<Tx, D extends Dialect = "postgres">(
  options: PostgresStoreOptions & { readonly transactions: OnPostgres<Tx, D> },
): PostgresStore<Tx>;
export function postgresStore(
  options: PostgresStoreOptions & { readonly transactions?: unknown },
): PostgresStore<unknown> {
  checkOptions("postgresStore", options, rules, ["pool"]);
  const { pool, schema = defaultSchema } = options;
  const onPool = pgTransactions(pool);
  const library = requirePostgres((options.transactions ?? onPool) as TransactionLibrary<unknown>);
  surviveBrokenConnections(pool);
  const name = "postgres";
  const checkSchema = schemaCheck(schema);
  const open = ownConnections(pool, options.directUrl);
  const { run, ...compared } = comparedDatabases(statementRunner(pool, open), library === onPool ? undefined : library);
  const { transaction, current, afterCommit } = surroundingTransactions(name, library, sessionTerminator(open));
  const boxes = boxFinder(schema, run, checkSchema);

  /**
   * Runs one statement in the user's transaction. Errors of the library are passed on unchanged, since the user knows
   * them.
   */
  async function write(tx: unknown, statement: string | GuardedStatement, params: readonly unknown[]) {
    const execute = library.executor(tx);
    try {
      const checking = checkSchema(execute);
      if (checking !== undefined) await checking;
      const comparing = compared.inTransaction(execute);
      if (comparing !== undefined) await comparing;
      return (await execute(statement, params)).rows;
    } catch (error) {
      throw schemaError(error, schema);
    }
  }

  const tickStatement = tickSql(schema);

  /** The statements of each box, created once. */
  const statements = new Map<string, AppendSql>();
  async function appending(box: string, tx: unknown): Promise<AppendSql> {
    const made = appendSql(await boxes.tables(box, library.executor(tx)));
    statements.set(box, made);
    return made;
  }

  return {
    name,
    // `router.constrained` advises a larger pool. If all clients share one connection, as with PGlite, no larger pool
    // is possible, so no size is reported.
    ...(open !== undefined && given({ maxTransactions: library.maxTransactions })),
    schema,
    transaction,
    current,
    afterCommit,

    async append(tx, box, messages, { strictKeyOrder = false } = {}) {
      requireBox(box);
      const sql = statements.get(box) ?? (await appending(box, tx));
      if (messages.length === 0) library.executor(tx);
      else await write(tx, ...appendStatement(sql, messages, strictKeyOrder ? keyLocks(schema, box, messages) : []));
    },

    async cancel(tx, box, type, scheduleKey) {
      requireBox(box);
      const { cancel } = statements.get(box) ?? (await appending(box, tx));
      return (await write(tx, cancel, [type, scheduleKey])).length > 0;
    },

    async tick(tx, schedule, claim) {
      const times = [claim?.after, claim?.tick].map((ms) => (ms === undefined ? null : new Date(ms).toISOString()));
      const [row] = await write(tx, tickStatement, [schedule, ...times]);
      const { id, last_tick: lastTick, now, claimed } = row as Record<string, unknown>;
      return { id: String(id), lastTick: Number(lastTick), now: Number(now), claimed: claimed === true };
    },

    inbox: postgresInbox({ schema, boxes, run, onPool, write }),
    isConflict,
    isUnavailable: isConnectionLost,
    isRefused,

    box(box) {
      requireBox(box);
      const isInbox = consumerOf(box) !== undefined;
      const number = isInbox ? async (look: Executor) => (await boxes.tables(box, look)).box : () => outboxNumber;
      const boxOn = (execute: StatementRunner) => postgresBox(schema, box, number, execute, checkSchema);
      return open === undefined ? boxOn(run) : withReservedConnections(`${schema}.${box}`, boxOn, run, open);
    },

    admin: postgresAdmin(schema, boxes, run, onPool, checkSchema),
    purgeRules,
    purge: postgresRetention(schema, boxes, run, onPool, checkSchema),
    health: postgresHealth(schema, pool, boxes, open, compared.difference),

    async migrate() {
      try {
        await onPool.begin((client) => client.query(migrationSteps(schema)), { isolation: "read committed" });
      } catch (error) {
        throw schemaError(error, schema);
      }
    },
  };
}

/** The transactions of a library on PostgreSQL; for another dialect, a text that the compiler shows. */
type OnPostgres<Tx, D extends Dialect> = [D] extends ["postgres"] ? TransactionLibrary<Tx, D> : OtherDialect<Tx, D>;

type OtherDialect<Tx, D extends Dialect> = D extends "postgres"
  ? TransactionLibrary<Tx, D>
  : `these are transactions on ${D}, and postgresStore needs transactions on postgres: ${Advice}`;

type Advice = "give it a library on the same PostgreSQL as its pool";

function requirePostgres(library: TransactionLibrary<unknown>): TransactionLibrary<unknown> {
  if (library.dialect === "postgres") return library;
  throw new ConfigError(
    "option-invalid",
    `postgresStore: 'transactions' must be those of a library on PostgreSQL, ` +
      `and those of ${library.name} have the dialect ${library.dialect}; ` +
      `give the library a database on the same PostgreSQL as 'pool'`,
    { path: "transactions" },
  );
}

const prepared = new WeakSet<Pool>();

/**
 * If a connection breaks while it is idle, the pool emits an error. If it breaks between two statements, its client
 * does. Without a listener, either would end the process. The next use of the connection fails anyway.
 */
function surviveBrokenConnections(pool: Pool): void {
  if (prepared.has(pool)) return;
  prepared.add(pool);
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", connectionEnded));
}
