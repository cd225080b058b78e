import type { IsolationLevel, TransactionLibrary } from "../store.js";
import { defineTransactions, type Look } from "./define-transactions.js";
import { type ClientState, ended, isClient, whyNotOpen } from "./open-transaction.js";
import { servedDialect } from "./served-dialect.js";

interface QueryRunner {
  readonly isReleased: boolean;
  readonly isTransactionActive: boolean;
  // biome-ignore lint/suspicious/noExplicitAny: TypeORM declares it like this.
  query(text: string, params: any[] | undefined, structured: true): Promise<{ records?: any[]; affected?: number }>;
}

/** The part of a TypeORM entity manager that Postbox uses. */
export interface TypeormManager {
  readonly queryRunner?: QueryRunner | undefined;
}

/** The part of a TypeORM data source that Postbox uses. */
export interface TypeormDataSource<Manager extends TypeormManager> {
  readonly options: { readonly type: string };
  transaction<R>(work: (manager: Manager) => Promise<R>): Promise<R>;
  transaction<R>(isolation: TypeormIsolationLevel, work: (manager: Manager) => Promise<R>): Promise<R>;
}

type TypeormIsolationLevel = "READ COMMITTED" | "REPEATABLE READ" | "SERIALIZABLE";

const levels: Readonly<Record<IsolationLevel, TypeormIsolationLevel>> = {
  "read committed": "READ COMMITTED",
  "repeatable read": "REPEATABLE READ",
  serializable: "SERIALIZABLE",
};

/**
 * Transactions of TypeORM on PostgreSQL. The handle is the entity manager that `dataSource.transaction` passes to its
 * function, also in a nested transaction, or `queryRunner.manager` after `startTransaction()`.
 *
 * @example
 * ```ts
 * const store = postgresStore({ pool, transactions: typeorm(dataSource) });
 * await dataSource.transaction((em) => createOutbox(store, { source: "/orders" }).in(em).publish(OrderPlaced, order));
 * ```
 */
export function typeorm<Manager extends TypeormManager>(
  dataSource: TypeormDataSource<Manager>,
): TransactionLibrary<Manager, "postgres"> {
  servedDialect("typeorm", dataSource.options.type, ["postgres"]);
  return defineTransactions<Manager>({
    name: "typeorm",
    rightCall:
      "pass the manager of `dataSource.transaction(async (manager) => …)` " +
      "or the tx of store.transaction((tx) => …), while its function runs",
    look,
    client: ({ queryRunner }) => queryRunner && clientOf(queryRunner),
    async query({ queryRunner }, text, params) {
      const runner = queryRunner as QueryRunner;
      const client = clientOf(runner);
      if (client !== undefined) {
        // `runner.query` waits before it sends, and the transaction may be rolled back by then.
        const { rows, rowCount } = await client.query(text, [...params]);
        return { rows, rowCount: rowCount ?? 0 };
      }
      const { records = [], affected } = await runner.query(text, [...params], true);
      return { rows: records, rowCount: affected ?? records.length };
    },
    hasEnded: (error) => error instanceof Error && /query runner.* already released/i.test(error.message),
    begin: (work, { isolation }) =>
      isolation === undefined ? dataSource.transaction(work) : dataSource.transaction(levels[isolation], work),
  });
}

/** An entity manager has the same type inside and outside of a transaction. */
function look(value: unknown): Look {
  const runner = ((value ?? {}) as TypeormManager).queryRunner;
  if (runner === undefined || typeof runner.query !== "function") {
    return {
      not: "this is not the entity manager of a transaction: dataSource.manager runs each statement on any connection",
    };
  }
  // `isTransactionActive` stays true while COMMIT or ROLLBACK is in flight. The `pg` client knows better, and knows why
  // it was released.
  const client = clientOf(runner);
  const refusal = client === undefined ? undefined : whyNotOpen(client);
  if (refusal !== undefined) return refusal;
  if (runner.isReleased || !runner.isTransactionActive) return ended;
  return client === undefined ? "perhaps" : "open";
}

interface TypeormClient extends ClientState {
  query(text: string, params: unknown[]): Promise<{ rows: Record<string, unknown>[]; rowCount: number | null }>;
}

/** The `pg` client of the query runner, if it has one. */
function clientOf(runner: QueryRunner): TypeormClient | undefined {
  const client = (runner as { readonly databaseConnection?: unknown }).databaseConnection;
  return isClient(client) ? (client as TypeormClient) : undefined;
}
