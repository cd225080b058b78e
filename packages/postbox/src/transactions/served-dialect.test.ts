import { drizzle as drizzleOnMySql } from "drizzle-orm/mysql-proxy";
import { drizzle as drizzleOnPostgres } from "drizzle-orm/node-postgres";
import { drizzle as drizzleOnSqlite } from "drizzle-orm/sqlite-proxy";
import knexOf from "knex";
import {
  type DialectAdapter,
  DummyDriver,
  Kysely,
  MssqlAdapter,
  MysqlAdapter,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  SqliteAdapter,
} from "kysely";
import { createPool } from "mysql2/promise";
import pg from "pg";
import { describe, expect, expectTypeOf, it } from "vitest";
import { ConfigError } from "../errors.js";
import type { TransactionLibrary } from "../store.js";
import { mysqlStore } from "../stores/mysql/index.js";
import { postgresStore } from "../stores/postgres/index.js";
import { drizzle } from "./drizzle.js";
import { knex } from "./knex.js";
import { kysely } from "./kysely.js";
import { mikroOrm } from "./mikro-orm.js";
import { pgTransactions } from "./pg.js";
import { prisma } from "./prisma.js";
import { typeorm } from "./typeorm.js";

function kyselyOn(adapter: DialectAdapter) {
  return kysely(
    new Kysely<object>({
      dialect: {
        createAdapter: () => adapter,
        createDriver: () => new DummyDriver(),
        createIntrospector: (db) => new PostgresIntrospector(db),
        createQueryCompiler: () => new PostgresQueryCompiler(),
      },
    }),
  );
}

const typeormOn = (type: string) =>
  typeorm({ options: { type }, transaction: () => Promise.reject() as Promise<never> });
const prismaOn = (provider?: string) =>
  prisma({
    $transaction: () => Promise.reject() as Promise<never>,
    ...(provider !== undefined && { _activeProvider: provider }),
  });

class Platform {}
class MySqlPlatform extends Platform {}
class MariaDbPlatform extends MySqlPlatform {}
class PostgreSqlPlatform extends Platform {}
class OwnPlatform extends PostgreSqlPlatform {}
const mikroOrmOn = (platform: Platform) =>
  mikroOrm({
    getPlatform: () => platform,
    isInTransaction: () => false,
    execute: () => Promise.reject(),
    transactional: () => Promise.reject(),
    fork: () => Promise.reject() as never,
  });

const onPostgresOnly: readonly string[] = ["typeorm", "mikroOrm", "prisma"];

describe("a library on a database on which Postbox does not serve it is refused", () => {
  const refused: readonly (readonly [string, string, () => unknown])[] = [
    // @ts-expect-error its type tells
    ["drizzle", "SQLite", () => drizzle(drizzleOnSqlite(async () => ({ rows: [] })))],
    ["kysely", "SQLite", () => kyselyOn(new SqliteAdapter())],
    ["kysely", "SQL Server", () => kyselyOn(new MssqlAdapter())],
    ["knex", "SQLite", () => knex(knexOf({ client: "better-sqlite3", useNullAsDefault: true }))],
    ["knex", "CockroachDB", () => knex(knexOf({ client: "cockroachdb" }))],
    ["knex", "Redshift", () => knex(knexOf({ client: "redshift" }))],
    ["typeorm", "MySQL", () => typeormOn("aurora-mysql")],
    ["typeorm", "SQLite", () => typeormOn("better-sqlite3")],
    ["mikroOrm", "MariaDB", () => mikroOrmOn(new MariaDbPlatform())],
    ["prisma", "SQL Server", () => prismaOn("sqlserver")],
  ];
  it.each(refused)("%s on %s", (library, database, use) => {
    expect(use).toThrow(ConfigError);
    expect(use).toThrow(
      `${library}: this database is ${database}, and Postbox serves this library on ` +
        `${onPostgresOnly.includes(library) ? "PostgreSQL" : "PostgreSQL and MySQL"} only; use one of these`,
    );
  });
});

it("a library on PostgreSQL is served, also with a class that extends the library's, or one that says nothing", () => {
  class OwnAdapter extends PostgresAdapter {}
  const onlyAtRunTime = [kyselyOn(new PostgresAdapter()), kyselyOn(new OwnAdapter()), knex(knexOf({ client: "pg" }))];
  for (const { dialect } of onlyAtRunTime) expect(dialect).toBe("postgres");
  const served = [
    drizzle(drizzleOnPostgres.mock()),
    typeormOn("postgres"),
    typeormOn("aurora-postgres"),
    mikroOrmOn(new OwnPlatform()),
    mikroOrmOn(Object.create(null)),
    prismaOn("postgresql"),
    prismaOn(),
  ];
  for (const { dialect } of served) {
    expect(dialect).toBe("postgres");
    expectTypeOf(dialect).toEqualTypeOf<"postgres">();
  }
});

it("a library on MySQL is served, too", () => {
  const onMysql = drizzle(drizzleOnMySql(async () => ({ rows: [] })));
  expectTypeOf(onMysql.dialect).toEqualTypeOf<"mysql">();
  const served = [onMysql, kyselyOn(new MysqlAdapter()), knex(knexOf({ client: "mysql2" }))];
  for (const { dialect } of served) expect(dialect).toBe("mysql");
});

it("a store refuses a library whose type does not tell the dialect, when it is made", () => {
  const transactions = kyselyOn(new MysqlAdapter());
  expect(() => postgresStore({ pool: new pg.Pool(), transactions })).toThrow("those of kysely have the dialect mysql");
  const pool = createPool({ database: "shop" });
  const onPostgres = kyselyOn(new PostgresAdapter());
  expect(() => mysqlStore({ pool, transactions: onPostgres })).toThrow("those of kysely have the dialect postgres");
  // @ts-expect-error its type tells
  expect(() => mysqlStore({ pool, transactions: pgTransactions(new pg.Pool()) })).toThrow("the dialect postgres");
});

it("a store in PostgreSQL refuses the transactions of another dialect, and names the alternative", () => {
  const pool = new pg.Pool();
  const transactions: TransactionLibrary<pg.ClientBase, "mysql"> = {
    ...pgTransactions(pool),
    name: "mine",
    dialect: "mysql",
  };
  // @ts-expect-error its type tells
  const make = () => postgresStore({ pool, transactions });
  expect(make).toThrow(ConfigError);
  expect(make).toThrow(
    "postgresStore: 'transactions' must be those of a library on PostgreSQL, " +
      "and those of mine have the dialect mysql; " +
      "give the library a database on the same PostgreSQL as 'pool'",
  );
});
