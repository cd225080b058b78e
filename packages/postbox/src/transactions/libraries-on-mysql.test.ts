import { describeOnEach } from "@postbox/testkit/servers";
import { type MysqlLibrarySuiteOptions, mysqlLibrarySuite } from "@postbox/testkit/suites";
import { sql as drizzleSql } from "drizzle-orm";
import { drizzle as drizzleOrm } from "drizzle-orm/mysql2";
import knexOf, { type Knex } from "knex";
import { Kysely, MysqlDialect, sql, type Transaction } from "kysely";
import { createPool as createCallbackPool } from "mysql2";
import { createPool, type PoolConnection } from "mysql2/promise";
import { afterAll, describe, expect, expectTypeOf, it } from "vitest";
import { defineTransactions, mysql2Transactions, mysqlStore } from "../stores/mysql/index.js";
import { postgresStore } from "../stores/postgres/index.js";
import { drizzle } from "./drizzle.js";
import { knex } from "./knex.js";
import { kysely } from "./kysely.js";

interface Schema {
  orders: { id: string };
}

describeOnEach("mariadb", ({ url }) => {
  const ends: (() => Promise<unknown>)[] = [];
  afterAll(async () => {
    for (const end of ends) await end();
  });
  const pooled = () => {
    const pool = createPool({ uri: url, connectionLimit: 16 });
    ends.push(() => pool.end());
    return pool;
  };

  describe("mysql2", () => {
    const pool = pooled();
    mysqlLibrarySuite<PoolConnection>({
      url,
      name: "mysql2",
      rightCall: "connection.beginTransaction()",
      transactions: () => mysql2Transactions(pool) as never,
      impostors: () => [pool],
      async begin(work) {
        const connection = await pool.getConnection();
        try {
          await connection.beginTransaction();
          const result = await work(connection);
          await connection.commit();
          return result;
        } catch (error) {
          await connection.rollback();
          throw error;
        } finally {
          connection.release();
        }
      },
      nested: withSavepoint((tx, text) => tx.query(text)),
      run: (tx, statement) => tx.query(statement),
    });
  });

  describe("drizzle", () => {
    const pool = pooled();
    const db = drizzleOrm(pool);
    type Tx = Parameters<Parameters<typeof db.transaction>[0]>[0];
    mysqlLibrarySuite<Tx>({
      url,
      name: "drizzle",
      rightCall: "db.transaction(async (tx) => …)",
      transactions: () => drizzle(db),
      impostors: () => [db, pool],
      begin: (work) => db.transaction(work),
      nested: (tx, work) => tx.transaction(work),
      run: (tx, statement) => tx.execute(drizzleSql.raw(statement)),
    });

    it("has the dialect of its database in its type", () => {
      expectTypeOf(drizzle(db).dialect).toEqualTypeOf<"mysql">();
      expectTypeOf(mysqlStore({ pool, database: "shop", transactions: drizzle(db) }).append)
        .parameter(0)
        .toEqualTypeOf<Tx>();
      // @ts-expect-error its type tells
      expect(() => postgresStore({ pool, transactions: drizzle(db) })).toThrow("option-invalid");
    });
  });

  describe("kysely", () => {
    const pool = createCallbackPool({ uri: url, connectionLimit: 16 });
    const db = new Kysely<Schema>({ dialect: new MysqlDialect({ pool }) });
    ends.push(() => db.destroy());
    mysqlLibrarySuite<Transaction<Schema>>({
      url,
      name: "kysely",
      rightCall: "db.transaction().execute(async (trx) => …)",
      transactions: () => kysely(db),
      impostors: () => [db, pool],
      begin: (work) => db.transaction().execute(work),
      nested: withSavepoint((trx, text) => sql.raw(text).execute(trx)),
      run: (trx, statement) => sql.raw(statement).execute(trx),
    });
  });

  describe("knex", () => {
    const { hostname: host, port, username: user } = new URL(url);
    const db = knexOf({ client: "mysql2", connection: { host, port: Number(port || 3306), user }, pool: { max: 16 } });
    ends.push(() => db.destroy());
    mysqlLibrarySuite<Knex.Transaction>({
      url,
      name: "knex",
      rightCall: "knex.transaction(async (trx) => …)",
      transactions: () => knex(db),
      impostors: () => [db],
      begin: (work) => db.transaction(work),
      nested: (trx, work) => trx.transaction(work),
      run: async (trx, statement) => trx.raw(statement),
    });
  });

  describe("a library of one's own", () => {
    const pool = pooled();
    class UnitOfWork {
      constructor(readonly connection: PoolConnection) {}
    }
    const begin: MysqlLibrarySuiteOptions<UnitOfWork>["begin"] = async (work) => {
      const connection = await pool.getConnection();
      try {
        await connection.beginTransaction();
        const result = await work(new UnitOfWork(connection));
        await connection.commit();
        return result;
      } catch (error) {
        await connection.rollback();
        throw error;
      } finally {
        connection.release();
      }
    };
    mysqlLibrarySuite<UnitOfWork>({
      url,
      name: "UnitOfWork",
      rightCall: "pass the UnitOfWork",
      transactions: () =>
        defineTransactions<UnitOfWork>({
          name: "UnitOfWork",
          rightCall: "pass the UnitOfWork of your transaction",
          look: (tx) => (tx instanceof UnitOfWork ? "perhaps" : { not: "this is no UnitOfWork" }),
          query: async (tx, text, params) => {
            const [answer] = await tx.connection.query(text, params as string[]);
            return Array.isArray(answer)
              ? { rows: answer as Record<string, unknown>[], rowCount: answer.length }
              : { rows: [], rowCount: answer.affectedRows };
          },
          connection: ({ connection }) => connection,
          begin,
        }),
      impostors: () => [pool],
      begin,
      run: ({ connection }, statement) => connection.query(statement),
    });
  });
});

function withSavepoint<Tx>(run: (tx: Tx, text: string) => Promise<unknown>) {
  return async <R>(tx: Tx, work: (inner: Tx) => Promise<R>): Promise<R> => {
    await run(tx, "SAVEPOINT nested");
    try {
      const result = await work(tx);
      await run(tx, "RELEASE SAVEPOINT nested");
      return result;
    } catch (error) {
      await run(tx, "ROLLBACK TO SAVEPOINT nested");
      throw error;
    }
  };
}
