import { ConfigError, PostboxError } from "../../errors.js";
import { reasonOf } from "../../internal/reason-of.js";
import type { Runtime } from "../../internal/runtime.js";
import { runtimeWith } from "../../internal/runtime.js";
import { isUnavailable } from "../../internal/unavailable.js";
import { checkOptions, given, type OptionRule, object } from "../../options.js";
import type { Dialect, Store, TransactionLibrary } from "../../store.js";
import { isMysqlConflict, isMysqlLost, isMysqlRefused } from "../../transactions/mysql-errors.js";
import { type Mysql2Transaction, mysql2Transactions } from "../../transactions/mysql2.js";
import { surroundingTransactions } from "../../transactions/surrounding-transaction.js";
import { requireBox } from "../box-names.js";
import { MysqlAccess } from "./mysql-access.js";
import { mysqlAdmin } from "./mysql-admin.js";
import { append, cancel } from "./mysql-append.js";
import { mysqlBox } from "./mysql-box.js";
import { mysqlHealth } from "./mysql-health.js";
import { mysqlInbox } from "./mysql-inbox.js";
import { mysqlRetention } from "./mysql-retention.js";
import { tick } from "./mysql-tick.js";
import { databaseRule } from "./names.js";
import type { MysqlPool, Session } from "./own-connections.js";
import { migrationSteps } from "./schema.js";
import { requireServer } from "./server.js";

/** Options of `mysqlStore`. */
export interface MysqlStoreOptions {
  /**
   * A pool of `mysql2/promise` or `mysql2`. You own it: end it after everything that uses the store has stopped. It
   * needs a connection for each handler that runs concurrently. The store opens up to eight more of its own, with the
   * pool's address and login, and closes each after ten idle seconds.
   */
  readonly pool: MysqlPool;
  /** The database of the tables, on the pool's server. Defaults to the pool's database. */
  readonly database?: string;
  /** @experimental Time and randomness. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

/** A store on MySQL, MariaDB or TiDB. */
export interface MysqlStore<Tx> extends Store<Tx> {
  /** The database of its tables. */
  readonly database: string;
}

const poolRule: OptionRule = {
  expected: "a pool of mysql2",
  test: (value) =>
    ["getConnection", "query", "end"].every(
      (method) => typeof (value as Record<string, unknown> | null)?.[method] === "function",
    ),
};

const rules = { pool: poolRule, database: databaseRule, transactions: object, runtime: object };

/**
 * A store in MySQL (8.0.17 or later), MariaDB (10.6 or later) or TiDB. Without `transactions`, its transactions are
 * those of `mysql2` on the same pool. With it, they are those of that library, which must use the same server.
 *
 * @example
 * ```ts
 * const store = mysqlStore({ pool: createPool("mysql://localhost/shop") });
 * await store.migrate();
 * ```
 */
export function mysqlStore(
  options: MysqlStoreOptions & { readonly transactions?: undefined },
): MysqlStore<Mysql2Transaction>;
export function mysqlStore<Tx, D extends Dialect = "mysql">(
  options: MysqlStoreOptions & { readonly transactions: OnMysql<Tx, D> },
): MysqlStore<Tx>;
export function mysqlStore(options: MysqlStoreOptions & { readonly transactions?: unknown }): MysqlStore<unknown> {
  checkOptions("mysqlStore", options, rules, ["pool"]);
  const { pool, database } = options;
  const library = (options.transactions ?? mysql2Transactions(pool)) as TransactionLibrary<unknown>;
  requireMysql(library);
  const access = new MysqlAccess(pool, database, runtimeWith(options.runtime));
  const terminate = ({ pid }: { readonly pid: number }) => access.connections.reads.kill(pid);
  const { transaction, current, afterCommit } = surroundingTransactions("mysql", library, terminate);

  return {
    name: "mysql",
    database: access.database,
    ...given({ maxTransactions: library.maxTransactions }),
    transaction,
    current,
    afterCommit,

    async append(tx, box, messages, options = {}) {
      requireBox(box);
      await append(access, library.executor(tx), box, messages, options);
    },
    async cancel(tx, box, type, scheduleKey) {
      requireBox(box);
      return cancel(access, library.executor(tx), box, type, scheduleKey);
    },
    tick: async (tx, schedule, claim) => tick(access, library.executor(tx), schedule, claim),

    inbox: mysqlInbox(access, library),
    isConflict: isMysqlConflict,
    isUnavailable: (error) => isUnavailable(error) || isMysqlLost(error),
    isRefused: (error) => isMysqlRefused(error) || (error instanceof PostboxError && error.code === "store-refused"),

    box(name) {
      requireBox(name);
      return mysqlBox(access, name);
    },
    admin: mysqlAdmin(access),
    purge: mysqlRetention(access),
    health: mysqlHealth(access),
    migrate: () => access.connections.writes.use((session) => migrate(session, access.database)),
  };
}

/** How long one migration waits for another. */
const migrationLimitSeconds = 600;

/**
 * MySQL commits after each step. Every step may run again, so a migration that crashed is completed by the next one.
 * The lock is released when its session ends.
 */
async function migrate(session: Session, database: string): Promise<void> {
  await requireServer(session);
  // A lock's name may have 64 characters.
  const lock = `postbox.migrate.${database}`.slice(0, 64);
  const { rows } = await session.run("SELECT GET_LOCK(?, ?) AS got", [lock, migrationLimitSeconds]);
  if (Number(rows[0]?.got) !== 1) {
    throw new PostboxError(
      "store-failed",
      `another migration of '${database}' did not end within ${migrationLimitSeconds} seconds; call migrate() again`,
    );
  }
  try {
    for (const step of migrationSteps(database)) await session.run(step);
  } catch (error) {
    throw new PostboxError("store-failed", `could not migrate '${database}': ${reasonOf(error)}`, { cause: error });
  } finally {
    await session.run("DO RELEASE_LOCK(?)", [lock]).catch(() => {});
  }
}

/** The transactions of a library on MySQL; for another dialect, a text that the compiler shows. */
type OnMysql<Tx, D extends Dialect> = [D] extends ["mysql"] ? TransactionLibrary<Tx, D> : OtherDialect<Tx, D>;

type OtherDialect<Tx, D extends Dialect> = D extends "mysql"
  ? TransactionLibrary<Tx, D>
  : `these are transactions on ${D}, and mysqlStore needs transactions on mysql: ${Advice}`;

type Advice = "give it a library on the same MySQL as its pool";

function requireMysql(library: TransactionLibrary<unknown>): void {
  if (library.dialect === "mysql") return;
  throw new ConfigError(
    "option-invalid",
    `mysqlStore: 'transactions' must be those of a library on MySQL, and those of ${library.name} have the dialect ` +
      `${library.dialect}; give the library a database on the same MySQL as 'pool'`,
    { path: "transactions" },
  );
}
