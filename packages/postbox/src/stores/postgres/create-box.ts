import { laneCount } from "../../internal/lane.js";
import { tablesNamed } from "./names.js";
import { checkRows } from "./row-checks.js";

const message = `
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
 * Rows pass through these tables quickly, so most of a table is dead rows and a share of its size means nothing: autovacuum
 * starts after a number of them, and does not pause.
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
 * The tables of the outbox, or of the inboxes of all consumers.
 *
 * - `hold_key` is the key that a waiting row is held under; a row that waits alone is held under chr(1) and its id.
 * - `failures` has the last failed tries, as an array of `attempt`, `at` and `error`.
 * - `turn` counts how often an operator has put a row back to its place: a relay settles the row of the turn that it read.
 * - `changes` counts the same for a hold: a settle deletes only the hold that it saw.
 * - `holds` marks the parked rows that hold their key.
 * - `(lane + 0)` and `(position + 0)` keep an index from serving a condition on `lane` or `position`: of two indexes that could,
 *   stale statistics choose the wrong one.
 * - `id` has an index in every table, for operators. Ids begin with the time by default, so that an append writes to its last page.
 * - The database checks rows when they are appended, and only then: any row of `pending` can be parked.
 * - `done` has no unique index, since a replay keeps the id. It is partitioned by time; rows without a partition go to `overflow`.
 */
export function createBox(schema: string, box: "outbox" | "inbox"): string {
  const t = tablesNamed(schema, box);
  const done = `
      lane integer NOT NULL,
      position bigint NOT NULL,${message},
      attempts integer NOT NULL,
      done_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      failures jsonb`;
  return `
    CREATE TABLE ${t.pending} (
      lane integer NOT NULL,
      position bigint GENERATED ALWAYS AS IDENTITY,${message},
      attempts integer NOT NULL DEFAULT 0,
      crashes integer NOT NULL DEFAULT 0,
      last_error text,
      failures jsonb,
      PRIMARY KEY (lane, position)
    ) WITH (${vacuumSoon});
    CREATE INDEX ON ${t.pending} (id);

    CREATE TABLE ${t.wait} (
      lane integer NOT NULL,
      position bigint NOT NULL,${message},
      attempts integer NOT NULL,
      crashes integer NOT NULL DEFAULT 0,
      last_error text,
      updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      hold_key text NOT NULL,
      failures jsonb,
      turn integer NOT NULL DEFAULT 0,
      PRIMARY KEY (lane, position)
    ) WITH (${vacuumSoon});
    CREATE INDEX ON ${t.wait} ((lane + 0), hold_key, (position + 0));
    CREATE INDEX ON ${t.wait} (id);

    CREATE TABLE ${t.hold} (
      lane integer NOT NULL,
      key text NOT NULL,
      due_at timestamptz NOT NULL,
      changes integer NOT NULL DEFAULT 0,
      PRIMARY KEY (lane, key)
    );
    CREATE INDEX ON ${t.hold} ((lane + 0), due_at);

    -- A settle locks (lane, epoch) as a foreign key would. Only because both are unique together does a change of the
    -- epoch wait for it.
    CREATE TABLE ${t.lane} (
      lane integer PRIMARY KEY,
      epoch bigint NOT NULL DEFAULT 0,
      owner text,
      clean boolean NOT NULL DEFAULT true,
      UNIQUE (lane, epoch)
    );
    INSERT INTO ${t.lane} (lane) SELECT generate_series(0, ${laneCount - 1});

    CREATE TABLE ${t.member} (
      owner text PRIMARY KEY,
      relay_order text NOT NULL,
      beat bigint NOT NULL,
      lease_ms double precision NOT NULL,
      expires_at timestamptz NOT NULL,
      first_lane integer NOT NULL DEFAULT 0
    ) WITH (fillfactor = 50);
    CREATE INDEX ON ${t.member} (first_lane);

    CREATE TABLE ${t.scheduled} (
      due_at timestamptz NOT NULL,
      position bigint GENERATED ALWAYS AS IDENTITY,
      lane integer NOT NULL,${message},
      PRIMARY KEY (due_at, position)
    ) WITH (${vacuumSoon});
    CREATE INDEX ON ${t.scheduled} (position);
    CREATE INDEX ON ${t.scheduled} (id);

    CREATE TABLE ${t.parked} (
      lane integer NOT NULL,
      position bigint NOT NULL,${message},
      attempts integer NOT NULL,
      reason text NOT NULL,
      parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      failures jsonb,
      turn integer NOT NULL DEFAULT 0,
      holds boolean NOT NULL DEFAULT false,
      PRIMARY KEY (lane, position)
    );
    CREATE INDEX ON ${t.parked} (lane, key) WHERE holds;
    CREATE INDEX ON ${t.parked} (id);

    CREATE TABLE ${t.overflow} (${done}
    );
    CREATE INDEX ON ${t.overflow} (position);
    CREATE INDEX ON ${t.overflow} (id);
    CREATE INDEX ON ${t.overflow} (done_at);
    CREATE TABLE ${t.done} (${done}
    ) PARTITION BY RANGE (done_at);
    CREATE INDEX ON ${t.done} (position);
    CREATE INDEX ON ${t.done} (id);
${checkRows(schema, box)}
`;
}
