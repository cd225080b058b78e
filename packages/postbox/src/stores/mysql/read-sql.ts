import { laneOf } from "../../internal/lane.js";
import type { LaneGap, LaneRead } from "../../store.js";
import { holdOfId } from "../settle-plan.js";
import { messageColumnsOfM } from "./mysql-rows.js";
import { nowSql, type Tables } from "./names.js";

/*
 * The reads of a relay. Each is one statement, so that it sees one moment: it picks rows in bounded ranges of an index,
 * one for each lane, cuts them where they reach the limit of bytes, and only then reads their messages.
 */

const columns = `m.lane, m.position, m.attempts, m.crashes, ${messageColumnsOfM}`;

/** Whether the key of `m` is held. */
function isHeld(t: Tables): string {
  return `EXISTS (SELECT 1 FROM ${t.hold} h FORCE INDEX (PRIMARY)
      WHERE h.box = m.box AND h.lane = m.lane AND h.name = CAST(m.\`key\` AS BINARY))`;
}

/** Of the picked rows, in order of `turn` and position: those before the limit of bytes is reached. */
function upToBytes(branches: readonly string[], maxBytes: number): string {
  return `(SELECT turn, lane, position FROM (
      SELECT turn, lane, position, SUM(bytes) OVER (ORDER BY turn, position) - bytes AS before_it
      FROM (${branches.join(" UNION ALL ")}) picked
    ) measured WHERE before_it < ${maxBytes}) p`;
}

/** The first rows of each lane above a position, in the order of the lanes. */
export function readSql(t: Tables, box: number, lanes: readonly LaneRead[], maxBytes: number): string {
  const branches = lanes.map(
    ({ lane, after = 0, limit }, turn) =>
      `(SELECT ${turn} AS turn, lane, position, bytes FROM ${t.pending} FORCE INDEX (PRIMARY)
        WHERE box = ${box} AND lane = ${lane} AND position > ${after} ORDER BY position LIMIT ${limit})`,
  );
  return pendingSql(t, box, branches, maxBytes, "0");
}

/** The first unknown rows in these ranges, in order of position over all lanes: one more than `limit`. */
export function lateSql(t: Tables, box: number, gaps: readonly LaneGap[], limit: number, maxBytes: number): string {
  const branches = gaps.map(({ lane, after, upTo, known }) => {
    const unknown = known.length === 0 ? "" : `AND position NOT IN (${known.join(", ")})`;
    return `(SELECT 0 AS turn, lane, position, bytes FROM ${t.pending} FORCE INDEX (PRIMARY)
        WHERE box = ${box} AND lane = ${lane} AND position > ${after} AND position <= ${upTo} ${unknown}
        ORDER BY position LIMIT ${limit + 1})`;
  });
  return pendingSql(t, box, branches, maxBytes, `${nowSql} - m.created_at`);
}

function pendingSql(t: Tables, box: number, branches: readonly string[], maxBytes: number, age: string): string {
  // A statement all the same: the writers in progress are read with it.
  if (branches.length === 0) return "SELECT 1 FROM DUAL WHERE FALSE";
  return `SELECT p.turn AS place, ${columns}, ${isHeld(t)} AS held, ${age} AS age
    FROM ${upToBytes(branches, maxBytes)} STRAIGHT_JOIN ${t.pending} m FORCE INDEX (PRIMARY)
      ON m.box = ${box} AND m.lane = p.lane AND m.position = p.position`;
}

/** The holds of each lane that are due and have rows, those due longest first, without those in `except`. */
export function dueHoldsSql(
  t: Tables,
  box: number,
  lanes: readonly Omit<LaneRead, "after">[],
  except: readonly string[],
): [string, unknown[]] {
  const params: unknown[] = [];
  const branches = lanes.map(({ lane, limit }) => {
    // A key is held in its own lane only, and a row that waits alone in any.
    const known = except.filter((name) => name.startsWith(alone) || laneOf(name) === lane);
    params.push(...known.map((name) => Buffer.from(name)));
    const unknown = known.length === 0 ? "" : `AND name NOT IN (${known.map(() => "?").join(", ")})`;
    return `(SELECT lane, name FROM ${t.hold} h FORCE INDEX (due)
        WHERE box = ${box} AND lane = ${lane} AND due_at <= ${nowSql} ${unknown}
          AND EXISTS (SELECT 1 FROM ${t.waiting} w FORCE INDEX (hold)
            WHERE w.box = h.box AND w.lane = h.lane AND w.hold = h.name)
        ORDER BY due_at LIMIT ${limit})`;
  });
  return [branches.join(" UNION ALL "), params];
}

const alone = holdOfId({ id: "" });

/** A hold, and how many of its rows to read. */
export interface DueHold {
  readonly lane: number;
  readonly name: string;
  readonly limit: number;
}

/** The first rows under each of these holds. */
export function waitingSql(t: Tables, box: number, holds: readonly DueHold[], maxBytes: number): [string, unknown[]] {
  const branches = holds.map(
    ({ lane, limit }, turn) =>
      `(SELECT ${turn} AS turn, lane, position, bytes FROM ${t.waiting} FORCE INDEX (hold)
        WHERE box = ${box} AND lane = ${lane} AND hold = ? ORDER BY position LIMIT ${limit})`,
  );
  const sql = `SELECT p.turn AS place, ${columns}, m.turn, 0 AS held
    FROM ${upToBytes(branches, maxBytes)} STRAIGHT_JOIN ${t.waiting} m FORCE INDEX (PRIMARY)
      ON m.box = ${box} AND m.lane = p.lane AND m.position = p.position`;
  return [sql, holds.map(({ name }) => Buffer.from(name))];
}
