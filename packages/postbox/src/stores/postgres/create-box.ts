import { laneCount } from "../../internal/lane.js";
import { outboxNumber, tablesNamed } from "./names.js";
import { checkRows } from "./row-checks.js";
import { createScheduleKeyIndex } from "./schedule-sql.js";

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
 * Rows pass through these tables quickly, so most of a table is dead rows and a fraction of its size means nothing.
 * Autovacuum starts after a fixed number of dead rows and does not pause.
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
 * - `box` is the number of the box, the same in all rows of the outbox. The column takes no space there, because the
 *   position is aligned to eight bytes.
 * - `hold_key` is the key that a waiting row is held under. A row that waits alone is held under chr(1) and its id.
 * - `failures` has the last failed attempts, as an array of `attempt`, `at` and `error`.
 * - `turn` counts how often an operator has put a row back to its place. A relay settles only the turn that it read.
 * - `changes` does the same for a hold. A settle deletes only the hold that it saw.
 * - `schedule_key` names a scheduled message; a later one of the same type replaces it. Then the statement draws the
 *   position itself, because it writes rows in another order than that of their positions.
 * - `holds` marks the parked rows that hold their key.
 * - `(box + 0)`, `(lane + 0)` and `(position + 0)` keep an index from serving a condition on `box`, `lane` or
 *   `position`. If two indexes could serve it, stale statistics choose the wrong one.
 * - `id` has an index in every table, for operators. Ids start with the time by default, so an append writes to the
 *   last page of the index.
 * - Rows are checked when they are appended and never again, so that any row of `pending` can be parked.
 * - `done` has no unique index, because a replay keeps the id. It is partitioned by time. Rows without a partition go
 *   to `overflow`.
 */
export function createBox(schema: string, box: "outbox" | "inbox"): string {
  const t = tablesNamed(schema, box);
  const done = `
      box integer NOT NULL,
      lane integer NOT NULL,
      position bigint NOT NULL,${message},
      attempts integer NOT NULL,
      done_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      failures jsonb`;
  // The lanes of an inbox are created together with its number.
  const outboxLanes =
    box === "inbox"
      ? ""
      : `
    INSERT INTO ${t.lane} (box, lane) SELECT ${outboxNumber}, generate_series(0, ${laneCount - 1});`;
  return `
    CREATE TABLE ${t.pending} (
      box integer NOT NULL,
      lane integer NOT NULL,
      position bigint GENERATED ALWAYS AS IDENTITY,${message},
      attempts integer NOT NULL DEFAULT 0,
      crashes integer NOT NULL DEFAULT 0,
      last_error text,
      failures jsonb,
      PRIMARY KEY (box, lane, position)
    ) WITH (${vacuumSoon});
    CREATE INDEX ON ${t.pending} (id);

    CREATE TABLE ${t.wait} (
      box integer NOT NULL,
      lane integer NOT NULL,
      position bigint NOT NULL,${message},
      attempts integer NOT NULL,
      crashes integer NOT NULL DEFAULT 0,
      last_error text,
      updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      hold_key text NOT NULL,
      failures jsonb,
      turn integer NOT NULL DEFAULT 0,
      PRIMARY KEY (box, lane, position)
    ) WITH (${vacuumSoon});
    CREATE INDEX ON ${t.wait} ((box + 0), (lane + 0), hold_key, (position + 0));
    CREATE INDEX ON ${t.wait} (id);

    CREATE TABLE ${t.hold} (
      box integer NOT NULL,
      lane integer NOT NULL,
      key text NOT NULL,
      due_at timestamptz NOT NULL,
      changes integer NOT NULL DEFAULT 0,
      PRIMARY KEY (box, lane, key)
    );
    CREATE INDEX ON ${t.hold} ((box + 0), (lane + 0), due_at);

    -- A settle locks (box, lane, epoch) as a foreign key would. Only because these are unique together does a change of the
    -- epoch wait for it.
    CREATE TABLE ${t.lane} (
      box integer NOT NULL,
      lane integer NOT NULL,
      epoch bigint NOT NULL DEFAULT 0,
      owner text,
      clean boolean NOT NULL DEFAULT true,
      PRIMARY KEY (box, lane),
      UNIQUE (box, lane, epoch)
    );${outboxLanes}

    CREATE TABLE ${t.member} (
      box integer NOT NULL,
      owner text NOT NULL,
      relay_order text NOT NULL,
      beat bigint NOT NULL,
      lease_ms double precision NOT NULL,
      expires_at timestamptz NOT NULL,
      PRIMARY KEY (box, owner)
    ) WITH (fillfactor = 50);

    CREATE TABLE ${t.scheduled} (
      due_at timestamptz NOT NULL,
      position bigint GENERATED BY DEFAULT AS IDENTITY,
      box integer NOT NULL,
      lane integer NOT NULL,${message},
      schedule_key text,
      PRIMARY KEY (box, due_at, position)
    ) WITH (${vacuumSoon});
    CREATE INDEX ON ${t.scheduled} ((box + 0), position);
    CREATE INDEX ON ${t.scheduled} (id);${createScheduleKeyIndex(t.scheduled)}

    CREATE TABLE ${t.parked} (
      box integer NOT NULL,
      lane integer NOT NULL,
      position bigint NOT NULL,${message},
      attempts integer NOT NULL,
      reason text NOT NULL,
      parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      failures jsonb,
      turn integer NOT NULL DEFAULT 0,
      holds boolean NOT NULL DEFAULT false,
      PRIMARY KEY (box, lane, position)
    );
    CREATE INDEX ON ${t.parked} (box, lane, key) WHERE holds;
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
