import type { IsolationLevel, TransactionLibrary } from "../store.js";
import { isConnectionLost } from "./connection-lost.js";
import { defineTransactions } from "./define-transactions.js";
import { ended, lost, notATransaction, type Refusal } from "./open-transaction.js";
import { sqlState } from "./sql-state.js";
import { Abandoned } from "./until-aborted.js";

/** What is needed of a transaction of Postgres.js; nothing but its `TransactionSql` has it. */
export interface PostgresJsTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: it takes whatever it can send.
  unsafe(text: string, params?: any[]): PromiseLike<readonly Record<string, unknown>[] & { readonly count: number }>;
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  typed: (value: string, type: number) => any;
  // biome-ignore lint/suspicious/noExplicitAny: its own overloads are not needed, only that it is there.
  savepoint: (...args: any[]) => unknown;
}

/** What is needed of Postgres.js itself. */
export interface PostgresJsDatabase<Tx extends PostgresJsTransaction> {
  begin<R>(options: string, work: (sql: Tx) => R | Promise<R>): Promise<unknown>;
}

/** The number that PostgreSQL has for it. */
const textType = 25;

const levels: Readonly<Record<IsolationLevel, string>> = {
  "read committed": "isolation level read committed",
  "repeatable read": "isolation level repeatable read",
  serializable: "isolation level serializable",
};

const rightCall =
  "pass the sql of `sql.begin(async (sql) => …)` or the tx of store.transaction((tx) => …), while its function runs";

/**
 * Transactions of Postgres.js (`postgres`): the handle is the `sql` that `sql.begin` or `sql.savepoint` hands to its function.
 *
 * ```ts
 * const store = postgresStore({ pool, transactions: postgresJs(sql) });
 * ```
 */
export function postgresJs<Tx extends PostgresJsTransaction>(sql: PostgresJsDatabase<Tx>): TransactionLibrary<Tx> {
  return defineTransactions<Tx>({
    name: "postgres.js",
    rightCall,
    look(tx) {
      // Nothing tells whether it has ended; its statements would still run, on a connection that may be another's by now.
      const known = (tx ?? {}) as Partial<PostgresJsTransaction>;
      if (typeof known.savepoint === "function" && typeof known.unsafe === "function") return "perhaps";
      return { not: "sql itself runs each statement on any connection, outside of your transaction" };
    },
    async query(tx, text, params) {
      // What is cast to JSON in the statement, it would make JSON of once more.
      const values = params.map((value) => (typeof value === "string" ? tx.typed(value, textType) : value));
      const rows = await tx.unsafe(text, values);
      return { rows, rowCount: rows.count };
    },
    begin: async <R>(work: (tx: Tx) => Promise<R>, { isolation }: { readonly isolation?: IsolationLevel }) =>
      (await beginSafely<Tx>(
        (inside) => sql.begin(isolation === undefined ? "" : levels[isolation], inside),
        work,
      )) as R,
  });
}

/** A server ends a session: an administrator asked for it, or the server stops. */
const terminated = "57P01";
/** At most so many connections may have been lost at once without their next user having noticed. */
const mostStale = 100;

/**
 * A transaction of Postgres.js, safe from three faults of it.
 *
 * - Whatever is written to a connection that was lost ends the process, also its own ROLLBACK: so work that fails for that never
 *   settles, and `begin` rejects by itself when its connection closes.
 * - It tells of a session that the server ended once more where that connection is used next: then nothing was sent, and it begins again.
 * - A handle still leads to its connection when its transaction has ended: so the one that `work` gets refuses from then on.
 */
export async function beginSafely<Tx extends object>(
  begin: (work: (tx: Tx) => Promise<unknown>) => Promise<unknown>,
  work: (tx: Tx) => Promise<unknown>,
): Promise<unknown> {
  for (let tries = 1; ; tries++) {
    let over: Refusal | undefined;
    let begun = false;
    const requireOpen = () => {
      if (over !== undefined) throw notATransaction(over, rightCall);
    };
    try {
      return await begin(async (tx) => {
        begun = true;
        try {
          return await work(refusing(tx, requireOpen));
        } catch (error) {
          if (over === undefined && !(error instanceof Abandoned) && !isConnectionLost(error)) throw error;
          return await new Promise<never>(() => {});
        } finally {
          over ??= ended;
        }
      });
    } catch (error) {
      over ??= lost;
      if (begun || tries >= mostStale || sqlState(error) !== terminated) throw error;
    }
  }
}

/** What of a handle sends something. */
const sending: ReadonlySet<unknown> = new Set(["unsafe", "file", "notify", "savepoint"]);

type Anything = (...args: unknown[]) => unknown;

/** The same handle, and those of its savepoints, as long as `requireOpen` does not throw. */
function refusing<Tx extends object>(tx: Tx, requireOpen: () => void): Tx {
  return new Proxy(tx, {
    apply(target, self, args) {
      requireOpen();
      return Reflect.apply(target as unknown as Anything, self, args);
    },
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function" || !sending.has(name)) return value;
      return (...args: unknown[]) => {
        requireOpen();
        const inner = (given: unknown) =>
          typeof given === "function" && name === "savepoint"
            ? (own: object) => (given as Anything)(refusing(own, requireOpen))
            : given;
        return Reflect.apply(value as Anything, target, args.map(inner));
      };
    },
  });
}
