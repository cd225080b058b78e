import { ConfigError } from "../errors.js";

/** The only database that has a store. */
const served = "PostgreSQL";

/**
 * Databases by the names that libraries use. The first match wins, because some names contain the name of a related
 * database.
 */
const databases: readonly (readonly [name: RegExp, database: string])[] = [
  [/cockroach/i, "CockroachDB"],
  [/redshift/i, "Redshift"],
  [/postgres|\bpg/i, served],
  [/maria/i, "MariaDB"],
  [/mysql/i, "MySQL"],
  [/singlestore/i, "SingleStore"],
  [/sqlite|sqljs|libsql/i, "SQLite"],
  [/mssql|sqlserver/i, "SQL Server"],
  [/oracle/i, "Oracle"],
  [/mongo/i, "MongoDB"],
  [/\bgel/i, "Gel"],
];

/**
 * Throws if a library names a database that Postbox has no store for. If the library names none or an unknown one,
 * PostgreSQL is assumed, and the first statement fails.
 */
export function requireServed(library: string, said: string | undefined): void {
  const database = databases.find(([name]) => name.test(said ?? ""))?.[1] ?? served;
  if (database === served) return;
  throw new ConfigError(
    "option-invalid",
    `${library}: this database is ${database}, and Postbox has no store for ${database} yet; use one on ${served}`,
  );
}

/** The names of an object's class and of its base classes. */
export function classesOf(value: object | undefined): string {
  const names: string[] = [];
  for (let at = value; at != null; at = Object.getPrototypeOf(at)) names.push(String(at.constructor?.name));
  return names.join(" ");
}
