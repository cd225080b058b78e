import { laneCount } from "../../internal/lane.js";
import { checkOptions } from "../../options.js";
import { createInboxFunctions } from "./inbox-functions.js";
import { createSlots, slotOf } from "./inbox-slots.js";
import {
  auditTable,
  boxStateTable,
  consumerTable,
  defaultSchema,
  inboxTable,
  migrationTable,
  schemaRule,
  tablesNamed,
} from "./names.js";
import { createPublishFunctions } from "./publish-function.js";
import { createInboxView, createViews } from "./views.js";

/*
 * The schema, as numbered steps. A step that was released never changes: the next one mends it.
 */

/** What `message-columns.ts` reads and writes. Spelt out again, since a released step never changes. */
const messageColumnsOfStep1 = `
      id text NOT NULL,
      source text NOT NULL,
      type text NOT NULL,
      subject text,
      time text,
      content_type text NOT NULL,
      data_schema text,
      event_version text,
      topic text NOT NULL,
      key text,
      extensions jsonb NOT NULL,
      headers jsonb NOT NULL,
      data bytea NOT NULL,
      created_at timestamptz NOT NULL DEFAULT clock_timestamp()`;

/**
 * Rows pass through `pending` quickly, so most of it is dead rows, and a share of its size means nothing: it is vacuumed
 * after a number of them, without pausing.
 */
const vacuumSoon = ["", "toast."]
  .flatMap((part) => [
    `${part}autovacuum_vacuum_scale_factor = 0`,
    `${part}autovacuum_vacuum_threshold = 5000`,
    `${part}autovacuum_vacuum_cost_delay = 0`,
  ])
  .concat("autovacuum_analyze_scale_factor = 0", "autovacuum_analyze_threshold = 20000")
  .join(", ");

/**
 * All tables of one box, also what only later versions will use (`scheduled`, `floor`): large tables are easier made than
 * altered. `hold_key` is what a waiting row is held under: its key, or for one that waits alone its id behind chr(1).
 */
function createBox(schema: string, box: "outbox" | "inbox"): string {
  const t = tablesNamed(schema, box);
  return `
    CREATE TABLE ${t.pending} (
      lane smallint NOT NULL,
      position bigint GENERATED ALWAYS AS IDENTITY,${messageColumnsOfStep1},
      attempts integer NOT NULL DEFAULT 0,
      crashes integer NOT NULL DEFAULT 0,
      last_error text,
      PRIMARY KEY (lane, position)
    ) WITH (${vacuumSoon});

    CREATE TABLE ${t.wait} (
      lane smallint NOT NULL,
      position bigint NOT NULL,${messageColumnsOfStep1},
      attempts integer NOT NULL,
      crashes integer NOT NULL DEFAULT 0,
      last_error text,
      updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      hold_key text NOT NULL,
      PRIMARY KEY (lane, position)
    ) WITH (${vacuumSoon});
    CREATE INDEX ON ${t.wait} (lane, hold_key, position);

    CREATE TABLE ${t.hold} (
      lane smallint NOT NULL,
      key text NOT NULL,
      due_at timestamptz NOT NULL,
      PRIMARY KEY (lane, key)
    );
    CREATE INDEX ON ${t.hold} (lane, due_at);

    -- A settle locks (lane, epoch) as a foreign key would. Only because both are unique together does a change of the
    -- epoch wait for it.
    CREATE TABLE ${t.lane} (
      lane smallint PRIMARY KEY,
      epoch bigint NOT NULL DEFAULT 0,
      owner text,
      floor bigint NOT NULL DEFAULT 0,
      clean boolean NOT NULL DEFAULT true,
      UNIQUE (lane, epoch)
    );
    INSERT INTO ${t.lane} (lane) SELECT generate_series(0, ${laneCount - 1});

    CREATE TABLE ${t.member} (
      owner text PRIMARY KEY,
      relay_order text NOT NULL,
      beat bigint NOT NULL,
      lease_ms double precision NOT NULL,
      expires_at timestamptz NOT NULL
    ) WITH (fillfactor = 50);

    CREATE TABLE ${t.scheduled} (
      due_at timestamptz NOT NULL,
      position bigint GENERATED ALWAYS AS IDENTITY,
      lane smallint NOT NULL,${messageColumnsOfStep1},
      PRIMARY KEY (due_at, position)
    );

    CREATE TABLE ${t.parked} (
      lane smallint NOT NULL,
      position bigint NOT NULL,${messageColumnsOfStep1},
      attempts integer NOT NULL,
      reason text NOT NULL,
      parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      PRIMARY KEY (lane, position)
    );

    CREATE TABLE ${t.done} (
      lane smallint NOT NULL,
      position bigint NOT NULL,${messageColumnsOfStep1},
      attempts integer NOT NULL,
      done_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
`;
}

function createInboxMemory(schema: string): string {
  return `
    CREATE TABLE ${inboxTable(schema)} (
      consumer text NOT NULL,
      id text NOT NULL,
      type text NOT NULL,
      source text NOT NULL,
      topic text NOT NULL,
      correlation_id text,
      received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      PRIMARY KEY (consumer, id)
    );
`;
}

/**
 * What is done gets partitions, by whoever cleans it; what there is so far is in the overflow from now on, where also goes what
 * finds no partition. Relays of the version before know no overflow: where they keep what they sent, they get partitions
 * to go on with.
 */
function partitionDone(schema: string, box: "outbox" | "inbox"): string {
  const t = tablesNamed(schema, box);
  return `
    ALTER TABLE ${t.done} RENAME TO "${box}_overflow";
    CREATE INDEX ON ${t.overflow} (position);
    CREATE INDEX ON ${t.overflow} (id);
    CREATE INDEX ON ${t.overflow} (done_at);
    ALTER TABLE ${t.overflow} ADD COLUMN failures jsonb;
    CREATE TABLE ${t.done} (LIKE ${t.overflow} INCLUDING DEFAULTS) PARTITION BY RANGE (done_at);
    CREATE INDEX ON ${t.done} (position);
    CREATE INDEX ON ${t.done} (id);
    IF EXISTS (SELECT FROM ${t.overflow}) THEN
      FOR day IN 0..7 LOOP
        first := date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') + day * interval '1 day';
        EXECUTE format('CREATE TABLE "${schema}".%I PARTITION OF ${t.done} FOR VALUES FROM (%L) TO (%L)',
          '${box}_done_' || to_char(first, 'YYYYMMDD') || '00',
          first AT TIME ZONE 'UTC', (first + interval '1 day') AT TIME ZONE 'UTC');
      END LOOP;
    END IF;
`;
}

/**
 * `failures` has the last tries that failed, as an array of `attempt`, `at` and `error`. `turn` counts how often an operator
 * has put a row back to its place: what a relay settles is the row of the turn that it read. `changes` counts how often one
 * did so behind a hold: a settle deletes the hold that it saw. `holds` are those that hold their key.
 *
 * After everything that takes its time: from here on, nobody can append until the end.
 */
function keepHistory(schema: string, box: "outbox" | "inbox"): string {
  const t = tablesNamed(schema, box);
  return `
    ALTER TABLE ${t.scheduled} SET (${vacuumSoon});
    CREATE INDEX ON ${t.scheduled} (position);
    ALTER TABLE ${t.parked} ADD COLUMN failures jsonb, ADD COLUMN turn integer NOT NULL DEFAULT 0,
      ADD COLUMN holds boolean NOT NULL DEFAULT false;
    UPDATE ${t.parked} p SET holds = true FROM ${t.hold} h
    WHERE h.lane = p.lane AND h.key = p.key AND h.due_at = 'infinity';
    CREATE INDEX ON ${t.parked} (lane, key) WHERE holds;
    ALTER TABLE ${t.hold} ADD COLUMN changes integer NOT NULL DEFAULT 0;
    ALTER TABLE ${t.wait} ADD COLUMN failures jsonb, ADD COLUMN turn integer NOT NULL DEFAULT 0;
    ALTER TABLE ${t.pending} ADD COLUMN failures jsonb;
`;
}

function createOperations(schema: string): string {
  return `
    CREATE TABLE ${boxStateTable(schema)} (
      name text PRIMARY KEY,
      paused_at timestamptz,
      cleaner text,
      cleaner_until timestamptz
    );

    CREATE TABLE ${auditTable(schema)} (
      number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      at timestamptz NOT NULL DEFAULT clock_timestamp(),
      box text NOT NULL,
      action text NOT NULL,
      actor text NOT NULL,
      reason text,
      selection jsonb,
      count integer NOT NULL,
      ids text[] NOT NULL,
      confirm text,
      last_position bigint
    );
    CREATE INDEX ON ${auditTable(schema)} (confirm) WHERE confirm IS NOT NULL;
`;
}

/**
 * Inboxes of their own for all consumers, and a memory that can be emptied in pieces. What was remembered so far goes to where its
 * message's time says, which is in its id if that is of version 7; else its arrival has to do.
 */
function createInboxes(schema: string): string {
  const memory = inboxTable(schema);
  const before = `"${schema}".inbox_message_before`;
  return `
    ALTER TABLE "${schema}".outbox_member ADD COLUMN first_lane integer NOT NULL DEFAULT 0;
    ALTER TABLE "${schema}".inbox_member ADD COLUMN first_lane integer NOT NULL DEFAULT 0;
    CREATE TABLE ${consumerTable(schema)} (
      name text PRIMARY KEY,
      number integer NOT NULL UNIQUE,
      retention_ms double precision
    );

    ALTER TABLE ${boxStateTable(schema)} ADD COLUMN forgotten_until timestamptz;

    DROP VIEW "${schema}".inbox_messages;
    ALTER TABLE ${memory} RENAME TO inbox_message_before;
    ALTER TABLE ${before} RENAME CONSTRAINT inbox_message_pkey TO inbox_message_before_pkey;
    CREATE TABLE ${memory} (
      slot smallint NOT NULL,
      consumer text NOT NULL,
      id text NOT NULL,
      type text NOT NULL,
      source text NOT NULL,
      topic text NOT NULL,
      event_version text,
      partition text,
      "offset" text,
      correlation_id text,
      handler text,
      hash text,
      data bytea,
      received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      processed_at timestamptz,
      PRIMARY KEY (consumer, id, slot)
    ) PARTITION BY LIST (slot);
${createSlots(schema)}
    INSERT INTO ${memory} (slot, consumer, id, type, source, topic, correlation_id, received_at, processed_at)
    SELECT ${slotOf("time")}, consumer, id, type, source, topic, correlation_id, received_at, processed_at
    FROM (SELECT *, CASE WHEN id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7'
                    THEN to_timestamp((('x' || left(replace(id, '-', ''), 12))::bit(48)::bigint) / 1000.0)
                    ELSE received_at END AS time FROM ${before}) AS b;
    DROP TABLE ${before};
${createInboxFunctions(schema)}${createInboxView(schema)}`;
}

const steps: readonly ((schema: string) => string)[] = [
  (schema) => createBox(schema, "outbox") + createBox(schema, "inbox") + createInboxMemory(schema),
  (schema) =>
    createOperations(schema) +
    partitionDone(schema, "outbox") +
    partitionDone(schema, "inbox") +
    keepHistory(schema, "inbox") +
    keepHistory(schema, "outbox") +
    createPublishFunctions(schema) +
    createViews(schema),
  createInboxes,
];

/** The version of the schema that this code works with. */
export const schemaVersion: number = steps.length;

/** What the script raises when the schema is newer than it. */
export const newerSchemaState = "PBX01";

export interface MigrationSqlOptions {
  /** The schema that everything is made in. Defaults to "postbox". */
  readonly schema?: string;
}

/**
 * The script that brings a database to the current schema, for teams who run their migrations themselves (with `psql`,
 * say): complete, from nothing or from any older version, in one transaction. Running it again changes nothing, and
 * then needs no right but to read; any number of them may run at once.
 */
export function migrationSql(options: MigrationSqlOptions = {}): string {
  checkOptions("migrationSql", options, { schema: schemaRule });
  return `BEGIN ISOLATION LEVEL READ COMMITTED;\n${migrationSteps(options.schema ?? defaultSchema)}COMMIT;\n`;
}

/**
 * What stands between BEGIN and COMMIT, at READ COMMITTED: after waiting for the lock it must see what was done. `upTo` is for
 * who wants an older version.
 */
export function migrationSteps(schema: string, upTo: number = schemaVersion): string {
  const versions = migrationTable(schema);
  return `-- Whoever comes second waits here, and then finds everything done.
SELECT pg_advisory_xact_lock(hashtextextended('postbox migration ${schema}', 0));
DO $postbox$
DECLARE applied integer; first timestamp;
BEGIN
  -- Whoever appends waits behind us: better to fail, and to be run again, than to let them wait for long.
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
${steps
  .slice(0, upTo)
  .map((step, index) => guarded(index + 1, versions, step(schema)))
  .join("")}END
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
