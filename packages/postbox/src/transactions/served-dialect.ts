import { ConfigError } from "../errors.js";
import type { Dialect } from "../store.js";

/**
 * Databases by the names that libraries use, and the dialects of those that have a store. The first match wins, because
 * some names contain the name of a related database.
 */
const databases: readonly (readonly [name: RegExp, database: string, dialect?: Dialect])[] = [
  [/cockroach/i, "CockroachDB"],
  [/redshift/i, "Redshift"],
  [/postgres|\bpg/i, "PostgreSQL", "postgres"],
  [/maria/i, "MariaDB", "mysql"],
  [/singlestore/i, "SingleStore"],
  [/mysql/i, "MySQL", "mysql"],
  [/sqlite|sqljs|libsql/i, "SQLite"],
  [/mssql|sqlserver/i, "SQL Server"],
  [/oracle/i, "Oracle"],
  [/mongo/i, "MongoDB"],
  [/\bgel/i, "Gel"],
];

const assumed = [/./, "PostgreSQL", "postgres"] as const;
const titles = { postgres: "PostgreSQL", mysql: "MySQL", sqlite: "SQLite" } satisfies Record<Dialect, string>;

/**
 * The dialect that a library names. Throws if Postbox does not serve the library on that database. If the library names
 * none or an unknown one, PostgreSQL is assumed, and the first statement fails.
 */
export function servedDialect<D extends Dialect>(library: string, said: string | undefined, served: readonly D[]): D {
  const [, database, dialect] = databases.find(([name]) => name.test(said ?? "")) ?? assumed;
  const found = served.find((each) => each === dialect);
  if (found !== undefined) return found;
  throw new ConfigError(
    "option-invalid",
    `${library}: this database is ${database}, and Postbox serves this library on ` +
      `${served.map((each) => titles[each]).join(" and ")} only; use one of these`,
  );
}

/** The names of an object's class and of its base classes. */
export function classesOf(value: object | undefined): string {
  const names: string[] = [];
  for (let at = value; at != null; at = Object.getPrototypeOf(at)) names.push(String(at.constructor?.name));
  return names.join(" ");
}
