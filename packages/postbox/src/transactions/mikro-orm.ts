import type { IsolationLevel, TransactionLibrary } from "../store.js";
import { defineTransactions, type Look } from "./define-transactions.js";
import { withQuestionMarks } from "./question-marks.js";
import { classesOf, servedDialect } from "./served-dialect.js";

/** The part of an entity manager of MikroORM's SQL drivers that Postbox uses. */
export interface MikroOrmManager {
  isInTransaction(): boolean;
  // biome-ignore lint/suspicious/noExplicitAny: MikroORM declares it like this.
  execute(text: string, params?: any[], method?: "all" | "get" | "run"): Promise<any>;
  // biome-ignore lint/suspicious/noExplicitAny: MikroORM declares its levels as an enum.
  transactional<R>(work: (em: any) => Promise<R>, options?: { isolationLevel?: any; clear?: boolean }): Promise<R>;
  fork(): MikroOrmManager;
  getPlatform(): object;
}

/**
 * Transactions of MikroORM on PostgreSQL. The handle is the entity manager that `em.transactional` passes to its
 * function. `store.transaction` opens one on a fork of `em`, which shares no entities with others. MikroORM flushes it
 * before COMMIT.
 *
 * @example
 * ```ts
 * const store = postgresStore({ pool, transactions: mikroOrm(orm.em) });
 * await orm.em.transactional((em) => createOutbox(store, { source: "/orders" }).in(em).publish(OrderPlaced, order));
 * ```
 */
export function mikroOrm<Manager extends MikroOrmManager>(em: Manager): TransactionLibrary<Manager, "postgres"> {
  servedDialect("mikroOrm", classesOf(em.getPlatform()), ["postgres"]);
  return defineTransactions<Manager>({
    name: "mikro-orm",
    rightCall:
      "pass the em of `em.transactional(async (em) => …)` " +
      "or the tx of store.transaction((tx) => …), while its function runs",
    look,
    async query(own, text, params) {
      const { rows, affectedRows } = await own.execute(...statementOf(text, params), "run");
      return { rows, rowCount: affectedRows ?? 0 };
    },
    // The text is that of the query builder underneath: Knex up to version 6, Kysely since then.
    hasEnded: (error) =>
      error instanceof Error &&
      /^Transaction (query already complete|is already (committed|rolled))/.test(error.message),
    begin: <R>(work: (em: Manager) => Promise<R>, { isolation }: { readonly isolation?: IsolationLevel }) =>
      em.fork().transactional((own: Manager) => work(own), isolation && { isolationLevel: isolation }),
  });
}

/**
 * MikroORM writes the values into the text itself. Only a Buffer becomes bytes, and without values no `\?` is
 * unescaped.
 */
function statementOf(text: string, params: readonly unknown[]): [string, unknown[]] {
  if (params.length === 0) return [text, []];
  const marked = withQuestionMarks(text, params);
  return [marked.text, marked.params.map((value) => (value instanceof Uint8Array ? Buffer.from(value) : value))];
}

/** The type of an entity manager is the same inside and outside of a transaction. */
function look(value: unknown): Look {
  const em = (value ?? {}) as Partial<MikroOrmManager>;
  if (typeof em.isInTransaction !== "function" || typeof em.execute !== "function") {
    return { not: "this is not an entity manager of a SQL driver of MikroORM" };
  }
  return em.isInTransaction() ? "perhaps" : { not: "this entity manager is in no transaction, or it has ended" };
}
