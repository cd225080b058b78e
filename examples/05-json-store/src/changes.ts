import type { ChangeAction } from "postbox/store";
import { takeAway } from "./lanes.js";
import { append, holdId, replace, rowsOf, waitingUnder } from "./rows.js";
import type { BoxState, HoldName, StoredRow } from "./state.js";

/** What an operator's change does to one row. */
export const changes: Readonly<Record<ChangeAction, (box: BoxState, row: StoredRow, now: number) => void>> = {
  retry(box, row, now) {
    if (row.status === "parked") retryParked(box, row, now);
    else if (row.status === "waiting") retryWaiting(box, row, now);
    else takeAway(box, row.lane);
  },

  discard(box, row, now) {
    const name = row.status === "waiting" ? row.hold : row.holds ? row.message.key : undefined;
    const hold = { lane: row.lane, name: name ?? "" };
    const isBehind = row.status === "waiting" && waitingUnder(box, hold)[0] !== row;
    box.rows.delete(row.position);
    if (name !== undefined && !isBehind) goOn(box, hold, now);
  },

  replay: (box, row, now) => append(box, row.message, now),
};

/** A row that goes back to its place gets another turn: what a relay settles of the one before no longer counts. */
function retryParked(box: BoxState, row: StoredRow, now: number): void {
  const { holds, turn = 0, ...parked } = row;
  const hold = { lane: row.lane, name: row.message.key ?? "" };
  if (row.message.key === undefined || !box.holds.has(holdId(hold))) {
    const { failures, error } = row;
    box.rows.delete(row.position);
    append(box, row.message, now, { failures, ...(error === undefined ? {} : { error }) });
    return;
  }
  replace(box, parked, { status: "waiting", attempts: 0, hold: hold.name, turn: turn + 1 }, now);
  if (holds) goOn(box, hold, now);
}

function retryWaiting(box: BoxState, row: StoredRow, now: number): void {
  replace(box, row, { attempts: 0 }, now);
  if (row.hold !== undefined) goOn(box, { lane: row.lane, name: row.hold }, now);
}

/** Lets what waits under a hold go on now, unless a parked message holds it until an operator says otherwise. */
function goOn(box: BoxState, hold: HoldName, now: number): void {
  if (holders(box, hold).length === 0) free(box, hold, now);
}

/** Lets what waits under a hold go on now, whatever it waits for. */
export function free(box: BoxState, hold: HoldName, now: number): void {
  for (const { holds: _, ...parked } of holders(box, hold)) box.rows.set(parked.position, parked);
  if (waitingUnder(box, hold).length === 0) box.holds.delete(holdId(hold));
  else box.holds.set(holdId(hold), { ...hold, dueAt: now });
}

/** The parked messages that hold a key. */
function holders(box: BoxState, { lane, name }: HoldName): StoredRow[] {
  return rowsOf(box, "parked").filter((row) => row.holds === true && row.lane === lane && row.message.key === name);
}
