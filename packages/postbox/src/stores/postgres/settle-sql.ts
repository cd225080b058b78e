import { laneCount } from "../../internal/lane.js";
import { keptFailures } from "../admin-options.js";
import { dropsCleared, dropsKeptMs } from "../dropped-entries.js";
import type { Tables } from "./box-sql.js";
import { messageColumns } from "./message-columns.js";
import { type PlannedFunction, plannedFunction } from "./planned-function.js";

const columns = messageColumns.map(([name]) => name).join(", ");
const valuesOf = (row: string) => messageColumns.map(([name]) => `${row}.${name}`).join(", ");

/** Where sent rows are stored: in `done`, or in the overflow if `done` has no partition for them. */
export type KeptIn = "done" | "overflow";

/**
 * Sets `standing` to the lanes of $1 whose epochs still equal those of $2, and locks each. A take-over in progress is
 * waited for, and then the epoch no longer matches. A later take-over waits for this transaction. Without the lock, a
 * settle could succeed in a lane that is just being taken.
 */
function fence(t: Tables, box: string): string {
  return `
      standing := ARRAY(
        SELECT k.lane FROM (SELECT * FROM unnest($1, $2) AS e (lane, epoch) ORDER BY lane) AS e
        CROSS JOIN LATERAL (
          SELECT x.lane FROM ${t.lane} x WHERE x.box = ${box} AND x.lane = e.lane AND x.epoch = e.epoch FOR KEY SHARE
        ) AS k);`;
}

/** The failed attempts so far, including this one if it failed, limited to the last ones. */
function failures(before: string): string {
  return `CASE WHEN item.error IS NULL THEN ${before}
             ELSE CASE WHEN jsonb_array_length(${before}) >= ${keptFailures} THEN ${before} - 0
                       ELSE coalesce(${before}, '[]'::jsonb) END
               || jsonb_build_object('attempt', item.tries, 'at', clock_timestamp(), 'error', item.error) END`;
}

/**
 * Settles rows as settle-plan.ts defines it, in one statement, so that the fence is held only while the server works.
 * The store suite compares both.
 *
 * - $1 and $2 are the lanes and their epochs.
 * - $3 to $5 are the rows that were sent from `pending`, by lane, position and id. They are nearly all rows and leave
 *   in one statement.
 * - $6 to $14 are the other rows: lane, position, id, whether it waits, turn, fate, attempts, ms until the retry (NaN:
 *   it only queues up), error ('': none).
 * - $15 is the hold of each row that was sent from `wait` ('': none).
 * - $16 is where sent rows are stored ('': nowhere), $17 whether each row waits alone, $18 the box.
 *
 * No array has NULLs: with `array_nulls = off`, a session would read them as texts.
 *
 * - A row matches only if its id does, because its position may belong to another row after a failover that lost
 *   commits. IS NOT DISTINCT FROM makes the lookup use the primary key; the index of ids is larger and compares texts.
 * - Rows that are gone already are skipped, so a settle whose answer was lost can be repeated. Rows that an operator
 *   has put back since then have another turn and are skipped as well.
 * - A row that waits alone is held under its id, after a character that no key can have.
 * - A retry in infinitely many ms is a hold until an operator releases it.
 * - A row that moves to `wait` always has a hold afterwards, due at once if there was none. Without a hold it would
 *   never be read.
 * - A hold ends when no row waits under it, unless an operator has changed it meanwhile.
 */
export function settleFunction(t: Tables): PlannedFunction {
  const kept = (into: KeptIn) => `
        INSERT INTO ${t[into]} (box, lane, position, ${columns}, created_at, attempts, failures)
        SELECT box, lane, position, ${columns}, created_at, attempts + 1, failures FROM gone;`;
  /** Deletes the rows that `rows` selects. The statement does nothing else, so its row count is theirs. */
  const removed = (rows: string) => `
      IF $16 = 'done' THEN
        WITH gone AS (DELETE FROM ${t.pending} x WHERE ${rows} RETURNING x.*)${kept("done")}
      ELSIF $16 = 'overflow' THEN
        WITH gone AS (DELETE FROM ${t.pending} x WHERE ${rows} RETURNING x.*)${kept("overflow")}
      ELSE
        DELETE FROM ${t.pending} x WHERE ${rows};
      END IF;`;
  const allAtOnce = `x.ctid = ANY (ARRAY(
          SELECT r.tid FROM unnest($3, $4, $5) AS i (lane, position, id)
          CROSS JOIN LATERAL (
            SELECT y.ctid AS tid FROM ${t.pending} y
            WHERE y.box = $18 AND y.lane = i.lane AND y.position = i.position AND y.id IS NOT DISTINCT FROM i.id OFFSET 0
          ) AS r
          WHERE get_bit(stands, i.lane) = 1))`;
  const oneByOne =
    "x.box = $18 AND x.lane = item.lane AND x.position = item.position AND x.id IS NOT DISTINCT FROM item.id";
  const keptRow = (into: KeptIn) => `
          INSERT INTO ${t[into]} (box, lane, position, ${columns}, created_at, attempts, failures)
          VALUES ($18, item.lane, item.position, ${valuesOf("w")}, w.created_at, w.attempts + 1, w.failures);`;
  const hold = (dueAt: string) => `
          INSERT INTO ${t.hold} AS h (box, lane, key, due_at) VALUES ($18, item.lane, held_under, ${dueAt})
          ON CONFLICT (box, lane, key) DO UPDATE SET due_at = excluded.due_at WHERE h.due_at <> 'infinity';`;
  const park = (row: string, turn: string) => `
          INSERT INTO ${t.parked} (box, lane, position, ${columns}, created_at, attempts, reason, failures, turn, holds)
          VALUES ($18, item.lane, item.position, ${valuesOf(row)}, ${row}.created_at, item.tries, item.error,
                  ${failures(`${row}.failures`)}, ${turn}, item.retry_in_ms IS NOT NULL AND ${row}.key IS NOT NULL);
            parked_key := ${row}.key;`;
  return plannedFunction({
    name: t.function("settle"),
    params: [
      ...["integer[]", "bigint[]", "integer[]", "bigint[]", "text[]"],
      ...[
        "integer[]",
        "bigint[]",
        "text[]",
        "boolean[]",
        "integer[]",
        "text[]",
        "integer[]",
        "double precision[]",
        "text[]",
      ],
      ...["text[]", "text", "boolean", "integer"],
    ],
    returns: ["lane integer", "transaction text"],
    declare: `standing integer[]; stands bytea := decode(repeat('00', ${laneCount / 8}), 'hex'); item record; p ${t.pending}%ROWTYPE; w ${t.wait}%ROWTYPE; held_under text; parked_key text;
      dropped text[] := '{}'; reasons text[] := '{}'; freed_lanes integer[] := '{}'; freed_keys text[] := '{}'; seen integer;`,
    body: `${fence(t, "$18")}
      -- One bit per lane: searching the array for the lane of each row would take a tenth of the settle.
      FOREACH seen IN ARRAY standing LOOP
        stands := set_bit(stands, seen, 1);
      END LOOP;
${removed(allAtOnce)}
      GET DIAGNOSTICS seen = ROW_COUNT;
      IF seen < cardinality($3) THEN
        -- Most are gone already, or of a lost lane. But a row that was changed while this waited for it has another ctid now.
        FOR item IN SELECT i.* FROM unnest($3, $4, $5) AS i (lane, position, id) WHERE i.lane = ANY (standing) LOOP
${removed(oneByOne)}
        END LOOP;
      END IF;

      FOR item IN
        SELECT i.lane, i.position, i.id, i.waiting, i.turn, i.fate, i.tries, nullif(i.retry_in_ms, 'NaN') AS retry_in_ms,
               nullif(i.error, '') AS error, nullif(i.held_under, '') AS held_under
        FROM unnest($6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
          AS i (lane, position, id, waiting, turn, fate, tries, retry_in_ms, error, held_under)
        WHERE i.lane = ANY (standing)
      LOOP
        held_under := NULL;
        parked_key := NULL;
        IF item.fate = 'pending' AND NOT item.waiting THEN
          UPDATE ${t.pending} x
          SET attempts = item.tries, last_error = item.error, crashes = 0, failures = ${failures("x.failures")}
          WHERE ${oneByOne};
          CONTINUE;
        ELSIF NOT item.waiting THEN
          DELETE FROM ${t.pending} x WHERE ${oneByOne}
          RETURNING * INTO p;
          CONTINUE WHEN NOT FOUND;
          held_under := CASE WHEN $17 OR p.key IS NULL THEN chr(1) || p.id ELSE p.key END;
          IF item.fate = 'wait' THEN
            INSERT INTO ${t.wait} (box, lane, position, ${columns}, created_at, attempts, last_error, hold_key, failures)
            VALUES ($18, item.lane, item.position, ${valuesOf("p")}, p.created_at, item.tries, coalesce(item.error, p.last_error),
                    held_under, ${failures("p.failures")});
          ELSIF item.fate = 'parked' THEN${park("p", "0")}
          ELSE
            dropped := dropped || item.id;
            reasons := reasons || item.error;
          END IF;
        ELSIF item.fate IN ('wait', 'pending') THEN
          UPDATE ${t.wait} x
          SET attempts = item.tries, crashes = 0, last_error = coalesce(item.error, x.last_error),
              updated_at = clock_timestamp(), failures = ${failures("x.failures")}
          WHERE ${oneByOne} AND x.turn = item.turn
          RETURNING x.hold_key INTO held_under;
          CONTINUE WHEN NOT FOUND;
        ELSE
          DELETE FROM ${t.wait} x
          WHERE ${oneByOne} AND x.turn = item.turn
          RETURNING * INTO w;
          IF FOUND THEN
            held_under := w.hold_key;
            IF item.fate = 'parked' THEN${park("w", "w.turn")}
            ELSIF item.fate = 'dropped' THEN
              dropped := dropped || item.id;
              reasons := reasons || item.error;
            ELSIF $16 = 'done' THEN${keptRow("done")}
            ELSIF $16 = 'overflow' THEN${keptRow("overflow")}
            END IF;
            freed_lanes := freed_lanes || item.lane;
            freed_keys := freed_keys || held_under;
          ELSIF item.fate = 'sent' THEN
            -- Its handler may have taken it out already, and not the hold of its key.
            freed_lanes := freed_lanes || item.lane;
            freed_keys := freed_keys || item.held_under;
            CONTINUE;
          ELSE
            CONTINUE;
          END IF;
        END IF;
        IF item.fate = 'parked' THEN
          -- It holds its key, whatever it has waited under itself; without a key, nothing.
          held_under := parked_key;
          CONTINUE WHEN held_under IS NULL;
        END IF;
        IF item.retry_in_ms = 'Infinity' THEN${hold("'infinity'")}
        ELSIF item.retry_in_ms IS NOT NULL THEN${hold("clock_timestamp() + item.retry_in_ms * interval '1 millisecond'")}
        ELSIF item.fate IN ('wait', 'pending') THEN
          INSERT INTO ${t.hold} (box, lane, key, due_at) VALUES ($18, item.lane, held_under, clock_timestamp())
          ON CONFLICT (box, lane, key) DO NOTHING;
        END IF;
      END LOOP;

      FOR item IN SELECT DISTINCT f.lane, f.key FROM unnest(freed_lanes, freed_keys) AS f (lane, key) LOOP
        SELECT h.changes INTO seen FROM ${t.hold} h
        WHERE h.box = $18 AND h.lane = item.lane AND h.key = item.key AND h.due_at <> 'infinity';
        CONTINUE WHEN NOT FOUND;
        PERFORM FROM ${t.wait} x
        WHERE (x.box + 0) = $18 AND (x.lane + 0) = item.lane AND x.hold_key = item.key LIMIT 1;
        CONTINUE WHEN FOUND;
        DELETE FROM ${t.hold} h
        WHERE h.box = $18 AND h.lane = item.lane AND h.key = item.key AND h.changes = seen AND h.due_at <> 'infinity';
      END LOOP;

      IF cardinality(dropped) > 0 THEN
        -- Another relay that clears the same ones is not waited for.
        DELETE FROM ${t.audit} a WHERE a.ctid = ANY (ARRAY(
          SELECT x.ctid FROM ${t.audit} x
          WHERE x.box = (SELECT b.name FROM ${t.boxes} b WHERE b.number = $18) AND x.action = 'drop'
            AND x.at < statement_timestamp() - interval '${dropsKeptMs} milliseconds'
          ORDER BY x.at LIMIT ${dropsCleared} FOR UPDATE SKIP LOCKED
        ));
        INSERT INTO ${t.audit} (box, action, actor, reason, count, ids)
        SELECT (SELECT b.name FROM ${t.boxes} b WHERE b.number = $18), 'drop', 'relay', d.reason, count(*), array_agg(d.id)
        FROM unnest(dropped, reasons) AS d (id, reason) GROUP BY d.reason;
      END IF;
      -- Without a lane, the number that reads have shown this transaction under.
      RETURN QUERY SELECT s, NULL::text FROM unnest(standing) AS s UNION ALL SELECT NULL, pg_current_xact_id()::text;`,
  });
}

/**
 * Stores the crashes $7 of the rows $3 to $6 (lane, position, id, whether it waits), in the lanes $1 with the epochs
 * $2, of the box $8.
 */
export function suspectFunction(t: Tables): PlannedFunction {
  const note = (table: string) => `
          UPDATE ${table} x SET crashes = item.crashes
          WHERE x.box = $8 AND x.lane = item.lane AND x.position = item.position AND x.id IS NOT DISTINCT FROM item.id;`;
  return plannedFunction({
    name: t.function("suspect"),
    params: ["integer[]", "bigint[]", "integer[]", "bigint[]", "text[]", "boolean[]", "integer[]", "integer"],
    returns: ["lane integer"],
    declare: "standing integer[]; item record;",
    body: `${fence(t, "$8")}
      FOR item IN
        SELECT i.* FROM unnest($3, $4, $5, $6, $7) AS i (lane, position, id, waiting, crashes) WHERE i.lane = ANY (standing)
      LOOP
        IF item.waiting THEN${note(t.wait)}
        ELSE${note(t.pending)}
        END IF;
      END LOOP;
      RETURN QUERY SELECT s FROM unnest(standing) AS s;`,
  });
}
