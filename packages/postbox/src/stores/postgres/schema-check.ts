import { PostboxError } from "../../errors.js";
import type { Executor } from "../../store.js";
import { sqlState } from "../../transactions/sql-state.js";
import { newerSchemaState, schemaVersion } from "./migrations.js";
import { migrationTable } from "./names.js";

const undefinedTable = "42P01";

/** Nothing to wait for once the schema has been found to be good. */
export type SchemaCheck = (execute: Executor) => Promise<void> | undefined;

/**
 * Makes sure, once per store, that the schema is the one this code was written for. It asks through the caller's own
 * executor, in statements that cannot fail, so that a transaction in which the answer is bad stays usable.
 */
export function schemaCheck(schema: string): SchemaCheck {
  let good = false;
  const check = async (execute: Executor): Promise<void> => {
    const table = migrationTable(schema);
    const exists = await execute("SELECT to_regclass($1) IS NOT NULL AS yes", [table]);
    if (exists.rows[0]?.yes !== true) throw schemaMissing(schema);
    const { rows } = await execute(`SELECT coalesce(max(version), 0) AS version FROM ${table}`, []);
    const version = Number(rows[0]?.version);
    if (version > schemaVersion) throw schemaNewer(schema);
    if (version < schemaVersion) {
      throw new PostboxError(
        "schema-outdated",
        `the schema "${schema}" has version ${version}, this postbox needs ${schemaVersion}; call store.migrate(), or run migrationSql()`,
      );
    }
    good = true;
  };
  return (execute) => (good ? undefined : check(execute));
}

/** An error of the database that is about the schema, in our words; any other as it is. */
export function schemaError(error: unknown, schema: string): unknown {
  const state = sqlState(error);
  if (state === undefinedTable) return schemaMissing(schema, error);
  return state === newerSchemaState ? schemaNewer(schema, error) : error;
}

function schemaMissing(schema: string, cause?: unknown): PostboxError {
  return new PostboxError(
    "schema-missing",
    `the schema "${schema}" has no tables of postbox in this database; call store.migrate() once, or run migrationSql()`,
    { cause },
  );
}

function schemaNewer(schema: string, cause?: unknown): PostboxError {
  return new PostboxError(
    "schema-newer",
    `the schema "${schema}" is newer than version ${schemaVersion}, which this postbox knows; update postbox here`,
    { cause },
  );
}
