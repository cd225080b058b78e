import { checkOptions, flag } from "../../options.js";
import { createBoxFunctions, createServerFunction } from "./box-functions.js";
import { createBox } from "./create-box.js";
import { createInboxFunctions } from "./inbox-functions.js";
import { createInboxMemory } from "./inbox-memory.js";
import { auditTable, boxTable, defaultSchema, migrationTable, outboxNumber, schemaRule } from "./names.js";
import { createPublishFunctions } from "./publish-function.js";
import { createRowChecks } from "./row-checks.js";
import { createSchedules } from "./tick-sql.js";
import { createViews } from "./views.js";

/* The schema, as numbered steps. A released step never changes; a later step corrects it. */

function createOperations(schema: string): string {
  return `
    CREATE TABLE ${boxTable(schema)} (
      number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      name text NOT NULL UNIQUE,
      paused_at timestamptz,
      cleaner text,
      cleaner_until timestamptz,
      forgotten_until timestamptz
    );
    INSERT INTO ${boxTable(schema)} (number, name) OVERRIDING SYSTEM VALUE VALUES (${outboxNumber}, 'outbox');

    CREATE TABLE ${auditTable(schema)} (
      number bigint GENERATED ALWAYS AS IDENTITY,
      at timestamptz NOT NULL DEFAULT clock_timestamp(),
      box text NOT NULL,
      action text NOT NULL,
      actor text NOT NULL,
      reason text,
      selection jsonb,
      count integer NOT NULL,
      ids text[] NOT NULL,
      confirm text,
      last_position bigint,
      PRIMARY KEY (box, number)
    );
    CREATE INDEX ON ${auditTable(schema)} (confirm) WHERE confirm IS NOT NULL;
    CREATE INDEX ON ${auditTable(schema)} (box, at) WHERE action = 'drop';
`;
}

/** The steps, as statements for a schema. The first one creates version 1. */
export const steps: readonly ((schema: string) => string)[] = [
  (schema) =>
    createOperations(schema) +
    createRowChecks(schema) +
    createBox(schema, "outbox") +
    createBox(schema, "inbox") +
    createServerFunction(schema) +
    createBoxFunctions(schema, "outbox") +
    createBoxFunctions(schema, "inbox") +
    createPublishFunctions(schema) +
    createInboxMemory(schema) +
    createInboxFunctions(schema) +
    createSchedules(schema) +
    createViews(schema),
];

/** The schema version that this code needs. */
export const schemaVersion: number = steps.length;

/** The SQLSTATE that the script raises if the schema is newer. */
export const newerSchemaState = "PBX01";

/** The oldest major version of PostgreSQL that the tests run on. */
const oldestServer = 14;

/** The SQLSTATE that the script raises on an older server. */
export const oldServerState = "PBX04";

/** Options of `migrationSql`. */
export interface MigrationSqlOptions {
  /** The schema that everything is created in. Defaults to "postbox". */
  readonly schema?: string;
  /**
   * Whether the script begins and commits its own transaction. If false, your tool has to run the whole script in one
   * transaction, at READ COMMITTED. Defaults to true.
   */
  readonly transaction?: boolean;
}

/**
 * The script that brings a database to the current schema, for teams that run their own migrations, for example with
 * `psql`. It is complete, from an empty database or any older version, in one transaction. Running it again changes
 * nothing and then needs read access only. It may run concurrently.
 *
 * @example
 * ```ts
 * writeFileSync("migrations/postbox.sql", migrationSql({ transaction: false }));
 * ```
 */
export function migrationSql(options: MigrationSqlOptions = {}): string {
  checkOptions("migrationSql", options, { schema: schemaRule, transaction: flag });
  const { schema = defaultSchema, transaction = true } = options;
  const steps = migrationSteps(schema);
  return transaction
    ? `BEGIN ISOLATION LEVEL READ COMMITTED;\n${steps}COMMIT;\n`
    : `${kept("postbox.", "")}${steps}${kept("", "postbox.")}`;
}

/**
 * Saves a setting that the script changes for the rest of the transaction, which may be the caller's, and restores it.
 */
function kept(to: string, from: string): string {
  const copy = (name: string) => `set_config('${to}${name}', current_setting('${from}${name}'), true)`;
  return `SELECT ${copy("search_path")}, ${copy("lock_timeout")};\n`;
}

/**
 * The statements between BEGIN and COMMIT. They need READ COMMITTED: after waiting for the lock, the script has to see
 * what was committed meanwhile.
 */
export function migrationSteps(schema: string): string {
  const versions = migrationTable(schema);
  return `-- So that no function of another role, in a schema of the search path, runs here with the owner's rights.
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL lock_timeout = '60s';
-- A concurrent migration waits here and then finds everything done.
SELECT pg_advisory_xact_lock(hashtextextended('postbox migration ${schema}', 0::bigint));
DO $postbox$
DECLARE applied integer;
BEGIN
  IF current_setting('server_version_num')::integer < ${oldestServer}0000 THEN
    RAISE EXCEPTION 'this server is PostgreSQL %, and postbox needs ${oldestServer} or later', current_setting('server_version')
      USING ERRCODE = '${oldServerState}', HINT = 'Upgrade the server.';
  END IF;
  IF current_setting('server_encoding') <> 'UTF8' THEN
    RAISE EXCEPTION 'this database has the encoding %, and messages are UTF-8', current_setting('server_encoding')
      USING ERRCODE = '${oldServerState}', HINT = 'Create the database with ENCODING ''UTF8''.';
  END IF;
  -- Appends queue up behind this script. It is better to fail and be run again than to block them for long.
  PERFORM set_config('lock_timeout', '10s', true);
  IF to_regnamespace('"${schema}"') IS NULL THEN
    CREATE SCHEMA "${schema}";
  END IF;
  IF to_regclass('${versions}') IS NULL THEN
    CREATE TABLE ${versions} (
      version integer PRIMARY KEY,
      applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
  END IF;
  SELECT coalesce(max(version), 0) INTO applied FROM ${versions};
  IF applied > ${schemaVersion} THEN
    RAISE EXCEPTION 'schema "${schema}" has version %, this script knows ${schemaVersion}', applied
      USING ERRCODE = '${newerSchemaState}', HINT = 'Update postbox.';
  END IF;
${steps.map((step, index) => guarded(index + 1, versions, step(schema))).join("")}END
$postbox$;
`;
}

function guarded(version: number, versions: string, step: string): string {
  return `  IF applied < ${version} THEN
${step}
    INSERT INTO ${versions} (version) VALUES (${version});
  END IF;
`;
}
