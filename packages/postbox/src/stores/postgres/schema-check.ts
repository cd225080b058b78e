import { PostboxError } from "../../errors.js";
import type { Executor } from "../../store.js";
import { onlyValue } from "../../transactions/open-transaction.js";
import { sqlState } from "../../transactions/sql-state.js";
import { newerSchemaState, oldServerState, schemaVersion } from "./migrations.js";
import { migrationTable } from "./names.js";

export const undefinedTable = "42P01";
const undefinedFunction = "42883";
const undefinedSchema = "3F000";

/** Returns undefined once the schema was found to be right, so that there is nothing to await. */
export type SchemaCheck = (execute: Executor) => Promise<void> | undefined;

/** What is wrong with a schema. */
export interface SchemaFault {
  readonly code: "schema-missing" | "schema-outdated" | "schema-newer";
  readonly text: string;
  /** Absent if there is no schema. */
  readonly version?: number;
}

/** Uses statements that cannot fail, so that the transaction stays usable whatever it finds. */
export async function schemaFault(execute: Executor, schema: string): Promise<SchemaFault | undefined> {
  const table = migrationTable(schema);
  const exists = await execute("SELECT to_regclass($1) IS NOT NULL AS yes", [table]);
  if (onlyValue(exists.rows) !== true) return { code: "schema-missing", text: schemaMissingText(schema) };
  const { rows } = await execute(`SELECT coalesce(max(version), 0) AS version FROM ${table}`, []);
  const version = Number(onlyValue(rows));
  if (version > schemaVersion) return { code: "schema-newer", text: schemaNewerText(schema), version };
  if (version === schemaVersion) return undefined;
  const text =
    `the schema "${schema}" has version ${version}, this postbox needs ${schemaVersion}; ` +
    "call store.migrate(), or run migrationSql()";
  return { code: "schema-outdated", text, version };
}

/** Checks once per store, through the caller's executor, that the schema has the version that this code needs. */
export function schemaCheck(schema: string): SchemaCheck {
  let good = false;
  const check = async (execute: Executor): Promise<void> => {
    const fault = await schemaFault(execute, schema);
    if (fault !== undefined) throw new PostboxError(fault.code, fault.text);
    good = true;
  };
  return (execute) => (good ? undefined : check(execute));
}

/** The server refuses the user, the password or the database; see `sqlState`. */
const refused: ReadonlySet<string | undefined> = new Set(["28000", "28P01", "3D000"]);

/** `pg` has no code for a login that fails at the client, such as without the password that the server asks for. */
const refusedLogin = /^SASL: /;

export function isRefused(error: unknown): boolean {
  return refused.has(sqlState(error)) || (error instanceof Error && refusedLogin.test(error.message));
}

export function refusedText(reason: string): string {
  return `PostgreSQL refuses the connection: ${reason}; check user, password and database of the pool`;
}

/** Rewords a database error about the schema or about authentication. Returns any other error unchanged. */
export function schemaError(error: unknown, schema: string): unknown {
  const state = sqlState(error);
  if (isRefused(error)) {
    return new PostboxError("store-refused", refusedText((error as Error).message), { cause: error });
  }
  switch (state) {
    case undefinedTable:
    case undefinedFunction:
    case undefinedSchema:
      return new PostboxError("schema-missing", schemaMissingText(schema), { cause: error });
    case newerSchemaState:
      return new PostboxError("schema-newer", schemaNewerText(schema), { cause: error });
    case oldServerState: {
      const { message } = error as Error;
      const { hint = "Upgrade the server." } = error as { readonly hint?: string };
      return new PostboxError("server-unsupported", `could not migrate "${schema}": ${message}. ${hint}`, {
        cause: error,
      });
    }
    default:
      return error;
  }
}

export function schemaMissingText(schema: string): string {
  return (
    `the schema "${schema}" has no tables of postbox in this database; ` +
    "call store.migrate() once, or run migrationSql()"
  );
}

function schemaNewerText(schema: string): string {
  return `the schema "${schema}" is newer than version ${schemaVersion}, which this postbox knows; update postbox here`;
}
