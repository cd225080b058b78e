import { ConfigError } from "../../errors.js";
import { commitRolledBack, endsTransaction, notATransaction } from "../../transactions/open-transaction.js";
import { transactionEnded } from "../../transactions/own-ending.js";
import type { SqliteAccess } from "./sqlite-access.js";
import { Connection, fileOf, isInTransaction, type SqliteDatabase } from "./sqlite-database.js";
import { unlessAborted } from "./sqlite-writer.js";

/** How long the function of a transaction may run on after its signal was aborted. */
const graceMs = 500;

const rightCall =
  "pass the database inside of database.transaction(() => …), or the tx of store.transaction((tx) => …)";

/** The calls that you may make in a transaction. */
export type SqliteTransaction<D extends SqliteDatabase = SqliteDatabase> = Pick<D, "prepare" | "exec">;

const begins = /^\s*begin\b/i;
/** Its body ends with END, too. */
const createsTrigger = /^\s*create\s+(?:temp\s+|temporary\s+)?trigger\b/i;

/** The handle of `store.transaction`: its connection, until the transaction ends. */
class Handle implements SqliteTransaction {
  readonly connection: Connection;
  open = true;

  constructor(connection: Connection) {
    this.connection = connection;
  }

  get inTransaction(): boolean {
    return this.open && this.connection.inTransaction;
  }

  prepare(sql: string) {
    this.#check(sql);
    return this.#guarded(this.connection.database.prepare(sql));
  }

  exec(sql: string): unknown {
    this.#check(sql);
    return this.connection.exec(sql);
  }

  /** A statement that is kept beyond the end would write into the next transaction on this connection. */
  #guarded<S extends object>(statement: S): S {
    const guarded: S = new Proxy(statement, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== "function") return value;
        return (...args: unknown[]) => {
          this.#requireOpen();
          const result: unknown = value.apply(target, args);
          return result === target ? guarded : result;
        };
      },
    });
    return guarded;
  }

  #check(sql: string): void {
    if (begins.test(sql) || (endsTransaction({ text: sql }) && !createsTrigger.test(sql))) throw transactionEnded();
    this.#requireOpen();
  }

  #requireOpen(): void {
    if (!this.open) throw notATransaction({ not: "it has ended" }, rightCall);
    // SQLite rolls back by itself after some errors, such as a full disk. The next statement would commit by itself.
    if (!this.connection.inTransaction) throw commitRolledBack();
  }
}

export interface SqliteTransactions {
  /** The connection of an open transaction of this file. Throws `not-a-transaction` for anything else. */
  connectionOf(tx: SqliteTransaction): Connection;
  begin<R>(work: (tx: SqliteTransaction) => Promise<R>, options?: { readonly signal?: AbortSignal }): Promise<R>;
}

export function sqliteTransactions(access: SqliteAccess): SqliteTransactions {
  /** Users' own connections that have passed `checked`. */
  const known = new WeakMap<object, Connection>();

  function connectionOf(tx: SqliteTransaction): Connection {
    const connection = tx instanceof Handle ? ownConnection(tx) : usersConnection(tx);
    access.requireSchema(connection);
    return connection;
  }

  function ownConnection(tx: Handle): Connection {
    if (!tx.open) throw notATransaction({ not: "it has ended" }, rightCall);
    if (tx.connection !== access.user) throw notATransaction({ not: "it is one of another store" }, rightCall);
    if (!tx.connection.inTransaction) throw commitRolledBack();
    return tx.connection;
  }

  function usersConnection(tx: SqliteTransaction): Connection {
    const { prepare, exec } = (tx ?? {}) as Partial<SqliteTransaction>;
    if (typeof prepare !== "function" || typeof exec !== "function") {
      throw notATransaction({ not: "this is not a database of SQLite" }, rightCall);
    }
    if (!isInTransaction(tx)) throw notATransaction({ not: "no transaction is open on this database" }, rightCall);
    const found = known.get(tx) ?? checked(new Connection(tx as SqliteDatabase));
    known.set(tx, found);
    return found;
  }

  function checked(connection: Connection): Connection {
    const file = fileOf(connection);
    if (file !== access.file) {
      const not = `it belongs to ${file || "a database in memory"}, and the store is in ${access.file}`;
      throw notATransaction({ not }, rightCall);
    }
    const synchronous = connection.first<{ readonly synchronous: number }>("PRAGMA synchronous")?.synchronous;
    if (Number(synchronous) !== 0) return connection;
    throw new ConfigError(
      "option-invalid",
      `${file} is opened with PRAGMA synchronous = OFF, so a power failure can lose what was committed; ` +
        "open it with synchronous = FULL, or NORMAL if losing the last commits is acceptable",
      { path: "synchronous" },
    );
  }

  return {
    connectionOf,

    async begin(work, { signal } = {}) {
      const connection = access.user;
      return access.writers.transact(
        connection,
        async () => {
          const tx = new Handle(connection);
          try {
            const result = await unlessAborted(work(tx), signal, graceMs);
            if (!connection.inTransaction) throw commitRolledBack();
            return result;
          } finally {
            tx.open = false;
          }
        },
        signal,
      );
    },
  };
}
