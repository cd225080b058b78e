import { type Box, defaultReadBytes, type LaneGap, requireBox } from "postbox/store";
import { addAudit } from "./audit.js";
import type { JsonDatabase } from "./database.js";
import { lanes, standing } from "./lanes.js";
import { append, isUnsent, rowsOf, seen, settle, waitingUnder } from "./rows.js";
import { type BoxState, emptyBox, type StoredRow } from "./state.js";

/** The relay's side of a box. Each verb that writes is one transaction, so it looks at the epochs and writes in one step. */
export function jsonBox(database: JsonDatabase, name: string): Box {
  requireBox(name);
  // The next transaction begins, and draws its positions, when this one has committed.
  return { inCommitOrder: true, ...lanes(database, name), ...reading(database, name), ...moving(database, name) };
}

/** Readers see the last commit. */
function reading(database: JsonDatabase, name: string): Pick<Box, "read" | "due" | "late"> {
  const look = async () => (await database.committed()).boxes.get(name) ?? emptyBox();
  return {
    async read(asked, { maxBytes = defaultReadBytes } = {}) {
      const box = await look();
      const passes = sizeLimit(maxBytes);
      const pending = rowsOf(box, "pending");
      const more = new Set<number>();
      const rows = asked.flatMap(({ lane, after = 0, limit }) => {
        const found = pending.filter((row) => row.lane === lane && row.position > after);
        const read = found.slice(0, limit).filter(passes);
        if (read.length < found.length) more.add(lane);
        return read.map((row) => seen(box, row));
      });
      return { rows, more, drawn: box.drawn };
    },

    async due(asked, { except = [], maxBytes = defaultReadBytes } = {}) {
      const box = await look();
      const rows = asked.flatMap(({ lane, limit }) => dueIn(box, lane, except).slice(0, limit));
      const read = rows.filter(sizeLimit(maxBytes)).sort((one, other) => one.position - other.position);
      return read.map((row) => seen(box, row));
    },

    async late(gaps, limit, { maxBytes = defaultReadBytes } = {}) {
      const box = await look();
      const found = rowsOf(box, "pending").filter((row) => gaps.some((gap) => isIn(row, gap)));
      const read = found.slice(0, limit).filter(sizeLimit(maxBytes));
      const rows = read.map((row) => ({ ...seen(box, row), ageMs: Date.now() - row.createdAt }));
      return { rows, more: read.length < found.length };
    },
  };
}

function moving(database: JsonDatabase, name: string): Pick<Box, "promote" | "suspect" | "settle"> {
  return {
    promote: (limit, signal) => database.change(name, (box, now) => promote(box, limit, now), signal),

    suspect: (owned, suspects, signal) => {
      const suspect = (box: BoxState) => {
        const stand = standing(box, owned);
        for (const { lane, position, message, crashes } of suspects) {
          const row = box.rows.get(position);
          const isSame = row !== undefined && isUnsent(row) && row.message.id === message.id;
          if (isSame && stand.has(lane)) box.rows.set(position, { ...row, crashes });
        }
        return stand;
      };
      return database.change(name, suspect, signal);
    },

    settle: (owned, settlements, options, signal) =>
      database.change(
        name,
        (box, now, draft) => {
          const stand = standing(box, owned);
          const allowed = settlements.filter(({ row }) => stand.has(row.lane));
          const { drops } = settle(box, allowed, now, options);
          for (const drop of drops) addAudit(draft, name, { action: "drop", by: "relay", ...drop }, now);
          return { standing: stand };
        },
        signal,
      ),
  };
}

function promote(box: BoxState, limit: number, now: number) {
  const scheduled = rowsOf(box, "scheduled").sort((one, other) => dueAt(one) - dueAt(other));
  const due = scheduled.slice(0, limit).filter((row) => dueAt(row) <= now);
  for (const { position, message } of due) {
    box.rows.delete(position);
    append(box, message, now);
  }
  const next = scheduled[due.length];
  return { count: due.length, ...(next === undefined ? {} : { nextInMs: Math.max(0, dueAt(next) - now) }) };
}

function dueAt(row: StoredRow): number {
  return row.dueAt ?? 0;
}

function isIn({ lane, position }: StoredRow, gap: LaneGap): boolean {
  return lane === gap.lane && position > gap.after && position <= gap.upTo && !gap.known.includes(position);
}

/** The first row of each hold, those due longest first, then the second of each, and so on: no key keeps the others from being read. */
function dueIn(box: BoxState, lane: number, except: readonly string[]): StoredRow[] {
  return [...box.holds.values()]
    .filter((hold) => hold.lane === lane && hold.dueAt <= Date.now() && !except.includes(hold.name))
    .sort((one, other) => one.dueAt - other.dueAt)
    .flatMap((hold) => waitingUnder(box, hold).map((row, place) => ({ row, place })))
    .sort((one, other) => one.place - other.place)
    .map(({ row }) => row);
}

/** Lets rows pass until they reach so many bytes together; the row that does so passes, too. */
function sizeLimit(maxBytes: number): (row: StoredRow) => boolean {
  let bytes = 0;
  return ({ message }) => {
    const passes = bytes < maxBytes;
    bytes += Buffer.byteLength(message.data, "base64");
    return passes;
  };
}
