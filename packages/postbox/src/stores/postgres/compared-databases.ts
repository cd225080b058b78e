import { AsyncLocalStorage } from "node:async_hooks";
import { PostboxError } from "../../errors.js";
import type { Executor, TransactionLibrary } from "../../store.js";
import { onlyValue } from "../../transactions/open-transaction.js";
import type { StatementRunner } from "./run-statement.js";

/** Notices that the pool and the transactions of a library are on different databases. */
export interface ComparedDatabases {
  /** Runs statements on the pool. Throws `databases-differ` once the databases are known to differ. */
  readonly run: StatementRunner;
  /**
   * Call it in each transaction of the user before the first statement. Returns undefined if there is nothing to await.
   * Throws the same.
   */
  inTransaction(execute: Executor): Promise<void> | undefined;
  /** How the databases differ. Undefined as long as that is not known. */
  difference(): string | undefined;
}

type Library<Tx> = Pick<TransactionLibrary<Tx>, "name" | "begin" | "executor">;

interface Database {
  readonly oid: string;
  readonly name: string;
  /** When the server process started, in seconds since 1970: servers differ in it, even copies of one server. */
  readonly started: string;
  readonly address: string | null;
  readonly port: number | null;
  /** A standby answered. */
  readonly standby: boolean;
}

/** Needs no table and no right, so it does not fail and leaves the user's transaction usable. */
const askSql = `SELECT pg_catalog.json_build_object(
    'oid', (SELECT d.oid::text FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()),
    'name', pg_catalog.current_database(),
    'started', extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text,
    'address', pg_catalog.host(pg_catalog.inet_server_addr()),
    'port', pg_catalog.inet_server_port(),
    'standby', pg_catalog.pg_is_in_recovery()
  )::text AS database`;

async function ask(execute: Executor): Promise<Database> {
  return JSON.parse(String(onlyValue((await execute(askSql, [])).rows)));
}

/**
 * Compares the databases once, beginning with the first transaction of the user.
 *
 * The pool is asked in the background: it may have a single connection, which this transaction occupies. If it answers
 * from another database, the library is asked again, in a transaction of its own. Only if that is the same database as
 * before do they differ: a failover between two questions looks like a difference, but no server comes back with the
 * same start time. A question that fails decides nothing, and the next transaction begins anew. Without a library, the
 * transactions are those of the pool, and there is nothing to compare.
 */
export function comparedDatabases<Tx>(run: StatementRunner, library: Library<Tx> | undefined): ComparedDatabases {
  if (library === undefined) return { run, inTransaction: () => undefined, difference: () => undefined };
  return comparing(run, library);
}

function comparing<Tx>(run: StatementRunner, library: Library<Tx>): ComparedDatabases {
  let state: "unknown" | "comparing" | "same" = "unknown";
  let difference: string | undefined;
  // Some libraries would join the user's transaction, which they find in the asynchronous context.
  const outside = AsyncLocalStorage.snapshot();

  async function compare(first: Database): Promise<void> {
    try {
      const ofPool = await ask(run);
      if (isSame(ofPool, first)) {
        state = "same";
        return;
      }
      const again = await library.begin((tx) => ask(library.executor(tx)));
      if (isSame(again, first) && ![ofPool, again].some(({ standby }) => standby)) {
        difference = differText(library.name, ofPool, first);
      }
    } catch {
      // The database cannot be reached, or the pool was ended. Their users report that.
    } finally {
      if (state === "comparing") state = "unknown";
    }
  }

  function requireSame(): void {
    if (difference !== undefined) throw new PostboxError("databases-differ", difference);
  }

  async function begun(execute: Executor): Promise<void> {
    state = "comparing";
    let first: Database;
    try {
      first = await ask(execute);
    } catch (error) {
      state = "unknown";
      throw error;
    }
    outside(() => void compare(first));
  }

  return {
    async run(...statement) {
      requireSame();
      return run(...statement);
    },
    inTransaction(execute) {
      if (state === "same") return undefined;
      requireSame();
      return state === "comparing" ? undefined : begun(execute);
    },
    difference: () => difference,
  };
}

function isSame(one: Database, other: Database): boolean {
  return one.oid === other.oid && one.started === other.started;
}

function differText(library: string, ofPool: Database, ofLibrary: Database): string {
  return (
    `the store's 'pool' is on the database ${named(ofPool)}, and its transactions of ${library} are on ` +
    `${named(ofLibrary)}: what those publish is never sent; ` +
    "give both the URL of one database, and restart the process"
  );
}

function named({ name, address, port, started }: Database): string {
  const server = address === null ? "a local server" : `the server ${address}:${port}`;
  return `"${name}" of ${server} that started at ${new Date(Number(started) * 1000).toISOString()}`;
}
