import { type BoxTables, tablesNamed } from "./names.js";

/*
 * `done` is partitioned by time, so that old rows are dropped at once and leave no dead rows. A partition is named
 * after its start. A partition that was detached, to be archived and dropped, has another name; nothing else is ever
 * dropped.
 */

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

export interface Partition {
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

/** The width of a partition: a day, or an hour if days would retain half as much again as was asked for. */
export function partitionWidth(retentionMs: number): number {
  return retentionMs < 2 * dayMs ? hourMs : dayMs;
}

/** How many partitions are created in advance, so that creating them may pause for that long. */
const ahead = 7;
const hoursAhead = 48;

/** The partitions that should exist from now on and overlap no existing one. */
export function missingPartitions(
  box: "outbox",
  now: number,
  widthMs: number,
  present: readonly Partition[],
): Partition[] {
  const count = 1 + (widthMs === dayMs ? ahead : hoursAhead);
  const first = Math.floor(now / widthMs) * widthMs;
  return Array.from({ length: count }, (_, index) => first + index * widthMs)
    .map((from) => ({ name: partitionName(box, from), from, to: from + widthMs }))
    .filter(({ from, to }) => !present.some((other) => other.from < to && from < other.to));
}

/** `outbox_done_2026013112`: the hour at which it starts, in UTC. */
function partitionName(box: "outbox", from: number): string {
  return `${box}_done_${new Date(from).toISOString().slice(0, 13).replace(/\D/g, "")}`;
}

/** With these settings, the text of a partition's bounds always has the same format. */
export const plainTimes = "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, YMD'";

/** The partitions of `done`, with their bounds in ms. Run `plainTimes` first. */
export function partitionsSql(t: Pick<BoxTables, "done">): string {
  const ms = (time: string) => `extract(epoch FROM ${time}) * 1000::numeric`;
  return `SELECT name, ${ms("begins")} AS from_ms, ${ms("ends")} AS to_ms FROM (${boundsSql(t)}) AS p`;
}

/**
 * For how many ms from now on `done` has a partition; no row if it has none. Does not need `plainTimes`: a session can
 * nearly always read the format that it writes, and a settle fails over to the overflow if it cannot.
 */
export function openPartitionSql(t: Pick<BoxTables, "done">): string {
  return `
    SELECT extract(epoch FROM ends - clock_timestamp()) * 1000::numeric AS left_ms FROM (${boundsSql(t)}) AS p
    WHERE begins <= clock_timestamp() AND ends > clock_timestamp()`;
}

function boundsSql(t: Pick<BoxTables, "done">): string {
  const bound = (which: "FROM" | "TO") =>
    `substring(pg_get_expr(c.relpartbound, c.oid) FROM '${which} \\(''([^'']+)''\\)')::timestamptz`;
  return `
    SELECT c.relname AS name, ${bound("FROM")} AS begins, ${bound("TO")} AS ends
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = '${t.done}'::regclass`;
}

/** The partitions that were detached but not dropped yet, oldest first. */
export function cutOffSql(schema: string, box: "outbox"): string {
  return `
    SELECT relname AS name FROM pg_class
    WHERE relnamespace = '"${schema}"'::regnamespace AND relkind = 'r' AND NOT relispartition
      AND relname ~ '^${box}_cut_off_'
    ORDER BY relname`;
}

/**
 * Creates a table and attaches it, in one transaction. Attaching an empty table blocks no settle; creating it as a
 * partition would.
 */
export function attachSql(schema: string, box: "outbox", { name, from, to }: Partition): string {
  const t = tablesNamed(schema, box);
  const at = (ms: number) => `'${new Date(ms).toISOString()}'`;
  return `
    CREATE TABLE IF NOT EXISTS "${schema}"."${name.replaceAll('"', '""')}" (LIKE ${t.done} INCLUDING DEFAULTS);
    ALTER TABLE ${t.done} ATTACH PARTITION "${schema}"."${name.replaceAll('"', '""')}" FOR VALUES FROM (${at(from)}) TO (${at(to)})`;
}

/** The name of a partition once it is detached, whatever its name was before. */
export function cutOffName(box: "outbox", { from }: Partition): string {
  return partitionName(box, from).replace(`${box}_done_`, `${box}_cut_off_`);
}

export function cutOffPartitionSql(schema: string, box: "outbox", partition: Partition): string {
  const { done } = tablesNamed(schema, box);
  const table = `"${schema}"."${partition.name.replaceAll('"', '""')}"`;
  return `
    ALTER TABLE ${done} DETACH PARTITION ${table};
    ALTER TABLE ${table} RENAME TO "${cutOffName(box, partition)}"`;
}

/** Attaches it again where it was. */
export function reattachSql(schema: string, box: "outbox", partition: Partition): string {
  return `
    ALTER TABLE "${schema}"."${cutOffName(box, partition)}" RENAME TO "${partition.name.replaceAll('"', '""')}";
    ${attachSql(schema, box, partition)}`;
}
