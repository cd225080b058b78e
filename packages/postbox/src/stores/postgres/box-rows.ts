import type { LaneRead, LaneRows, LateRow, LateRows, Row } from "../../store.js";
import { faultOf, type MessageRecord, messageFrom, usualContentType } from "../message-record.js";
import { WriterRanges } from "../writer-ranges.js";
import type { Field } from "./plain-rows.js";

/*
 * Turns the results of the functions in box-sql.ts into rows. The columns of the row come first, then a column of the
 * statement if it has one, and the columns of the message last.
 */

type Fields = readonly Field[];
type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

const [laneAt, positionAt, attemptsAt, crashesAt, heldAt, ownAt] = [0, 1, 2, 3, 4, 5];
const [sourceAt, extensionsAt, headersAt, dataAt] = [1, 9, 10, 11];

export function readFrom(records: readonly Fields[], lanes: readonly LaneRead[], maxBytes: number): LaneRows {
  const rows: Row[] = [];
  const rowFrom = rowReader(ownAt, false);
  const status = forEachRow(records, (fields) => rows.push(rowFrom(fields)));
  // Before sorting: the last row is the one at which `maxBytes` ended the read.
  const more = lanesWithMore(lanes, rows, bytesIn(records, rows, ownAt) >= maxBytes);
  return {
    rows: rows.sort(byLane),
    writers: writersIn(String(status?.[ownAt])),
    more,
    drawn: Number(status?.[positionAt] ?? 0),
    server: String(status?.[ownAt + sourceAt]),
  };
}

export function dueFrom(records: readonly Fields[]): Row[] {
  const rowFrom = rowReader(ownAt + 1, true);
  return records.map((fields) => ({ ...rowFrom(fields), turn: Number(fields[ownAt]) })).sort(byLane);
}

export function lateFrom(records: readonly Fields[], limit: number, maxBytes: number): LateRows {
  const rows: LateRow[] = [];
  const rowFrom = rowReader(ownAt + 1, false);
  const status = forEachRow(records, (fields) => rows.push({ ...rowFrom(fields), ageMs: Number(fields[ownAt]) }));
  return {
    rows: rows.sort((a, b) => a.position - b.position),
    writers: writersIn(String(status?.[ownAt + 1])),
    more: rows.length >= limit || bytesIn(records, rows, ownAt + 1) >= maxBytes,
  };
}

/** Passes every row to `take`. Returns the one without a lane, which lists the open transactions. */
function forEachRow(records: readonly Fields[], take: (fields: Fields) => void): Fields | undefined {
  let status: Fields | undefined;
  for (const fields of records) {
    if (fields[laneAt] === null) status = fields;
    else take(fields);
  }
  return status;
}

/** The columns of the message start at index `at`. */
function rowReader(at: number, waiting: boolean): (fields: Fields) => Row {
  return (fields) => {
    const { message, unreadable } = messageFrom({
      id: fields[at],
      source: fields[at + sourceAt],
      type: fields[at + 2],
      subject: fields[at + 3],
      time: fields[at + 4],
      content_type: fields[at + 5] ?? usualContentType,
      data_schema: fields[at + 6],
      topic: fields[at + 7],
      key: fields[at + 8],
      extensions: fields[at + extensionsAt] ?? "{}",
      headers: fields[at + headersAt] ?? "{}",
      data: fields[at + dataAt],
    } as MessageRecord);
    const row: Mutable<Row> = {
      lane: Number(fields[laneAt]),
      position: Number(fields[positionAt]),
      message,
      attempts: Number(fields[attemptsAt]),
      crashes: Number(fields[crashesAt]),
      waiting,
      held: fields[heldAt] === "t",
    };
    if (unreadable !== undefined) row.fault = faultOf(unreadable);
    return row;
  };
}

/** Parses `oldest:next:list:more`: the listed transactions, ascending, and `more` transactions from `next` on. */
function writersIn(text: string): WriterRanges {
  const [, next = "", list = "", more = ""] = text.split(":");
  const open = list === "" ? [] : list.split(",").map((number) => ({ from: Number(number), to: Number(number) + 1 }));
  if (Number(more) > 0) open.push({ from: Number(next), to: Number(next) + Number(more) });
  return new WriterRanges(open);
}

/** At least as many bytes as the statement counts for these rows. The statement counts headers in their stored form. */
function bytesIn(records: readonly Fields[], rows: readonly Row[], at: number): number {
  let bytes = 0;
  for (const { message } of rows) bytes += message.data.byteLength + 1024;
  for (const fields of records)
    bytes += 3 * ((fields[at + headersAt]?.length ?? 0) + (fields[at + extensionsAt]?.length ?? 0));
  return bytes;
}

/**
 * Lanes that reached their limit. If `maxBytes` ended the read, also the lane of the last row and all lanes after it.
 */
function lanesWithMore(lanes: readonly LaneRead[], rows: readonly Row[], wasCut: boolean): ReadonlySet<number> {
  const counts = new Map<number, number>();
  for (const { lane } of rows) counts.set(lane, (counts.get(lane) ?? 0) + 1);
  const last = rows.at(-1)?.lane;
  let isBehind = false;
  const more = new Set<number>();
  for (const { lane, limit } of lanes) {
    isBehind ||= wasCut && lane === last;
    if (isBehind || (counts.get(lane) ?? 0) >= limit) more.add(lane);
  }
  return more;
}

/** A join guarantees no order. */
function byLane(a: Row, b: Row): number {
  return a.lane - b.lane || a.position - b.position;
}
