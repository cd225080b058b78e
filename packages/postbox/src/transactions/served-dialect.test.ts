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
import pg from "pg";
import { describe, expect, expectTypeOf, it } from "vitest";
import { ConfigError } from "../errors.js";
import type { TransactionLibrary } from "../store.js";
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

describe("a library on a database without a store of Postbox is refused", () => {
  const refused: readonly (readonly [string, string, () => unknown])[] = [
    // @ts-expect-error its type tells
    ["drizzle", "MySQL", () => drizzle(drizzleOnMySql(async () => ({ rows: [] })))],
    // @ts-expect-error its type tells
    ["drizzle", "SQLite", () => drizzle(drizzleOnSqlite(async () => ({ rows: [] })))],
    ["kysely", "MySQL", () => kyselyOn(new MysqlAdapter())],
    ["kysely", "SQLite", () => kyselyOn(new SqliteAdapter())],
    ["kysely", "SQL Server", () => kyselyOn(new MssqlAdapter())],
    ["knex", "MySQL", () => knex(knexOf({ client: "mysql2" }))],
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
      `${library}: this database is ${database}, and Postbox has no store for ${database} yet; use one on PostgreSQL`,
    );
  });
});

it("a library on PostgreSQL is served, also with a class that extends the library's, or one that says nothing", () => {
  class OwnAdapter extends PostgresAdapter {}
  const served = [
    drizzle(drizzleOnPostgres.mock()),
    kyselyOn(new PostgresAdapter()),
    kyselyOn(new OwnAdapter()),
    knex(knexOf({ client: "pg" })),
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
