import type { Message } from "postbox";
import {
  holdNames,
  laneOf,
  type Row,
  type Settlement,
  type SettleOptions,
  type Status,
  settlePlan,
} from "postbox/store";
import type { BoxState, HoldName, JsonMessage, StoredRow } from "./state.js";

export function jsonOf({ data, deliverAt: _, scheduleKey: __, ...message }: Message): JsonMessage {
  return { ...message, data: Buffer.from(data).toString("base64") };
}

export function messageOf({ data, ...message }: JsonMessage): Message {
  return { ...message, data: new Uint8Array(Buffer.from(data, "base64")) };
}

export function rowsOf(box: BoxState, ...statuses: readonly Status[]): StoredRow[] {
  return [...box.rows.values()].filter(({ status }) => statuses.includes(status));
}

/** Puts a message behind all others of the box: to be sent, or if it has a `dueAt`, to wait for that moment. */
export function append(box: BoxState, message: JsonMessage, now: number, more: Partial<StoredRow> = {}): StoredRow {
  box.drawn += 1;
  const row: StoredRow = {
    status: more.dueAt === undefined ? "pending" : "scheduled",
    lane: laneOf(message.key ?? message.id),
    position: box.drawn,
    message,
    ...{ attempts: 0, crashes: 0, failures: [], revision: 0, createdAt: now, updatedAt: now },
    ...more,
  };
  replace(box, row, {}, now);
  return row;
}

/** Replaces a row by one that has come to its status just now. */
export function replace(box: BoxState, row: StoredRow, changes: Partial<StoredRow>, now: number): void {
  box.revision += 1;
  box.rows.set(row.position, { ...row, ...changes, revision: box.revision, updatedAt: now });
}

/** Settles rows whose lanes stand, and answers with the plan that it has written. */
export function settle(box: BoxState, settlements: readonly Settlement[], now: number, options: SettleOptions = {}) {
  const rows = settlements.flatMap(({ row }) => box.rows.get(row.position) ?? []).filter(isUnsent);
  const named = [...rows, ...settlements.map(({ row }) => row)];
  const ids = new Set(named.flatMap(({ lane, message }) => holdNames(message).map((name) => holdId({ lane, name }))));
  const held = [...ids].flatMap((id) => box.holds.get(id) ?? []);
  const holds = held.map((hold) => ({ ...hold, waiting: waitingUnder(box, hold).length }));
  const plan = settlePlan({ rows, holds, now }, settlements, options);
  for (const { to, after } of plan.rows) {
    if (to === "sent" && options.keep) replace(box, after, { status: "done", publishedAt: now }, now);
    else if (to === "sent" || to === "dropped") box.rows.delete(after.position);
    else replace(box, after, { status: to === "wait" ? "waiting" : to }, now);
  }
  for (const hold of plan.held) box.holds.set(holdId(hold), hold);
  for (const hold of plan.freed) box.holds.delete(holdId(hold));
  return plan;
}

export function isUnsent({ status }: StoredRow): boolean {
  return status === "pending" || status === "waiting";
}

export function holdId({ lane, name }: HoldName): string {
  return `${lane} ${name}`;
}

/** The rows that wait under a hold, in order of position. */
export function waitingUnder(box: BoxState, { lane, name }: HoldName): StoredRow[] {
  return rowsOf(box, "waiting").filter((row) => row.lane === lane && row.hold === name);
}

/** Whether the key of a row is held: then the row must go behind those that wait. */
export function isHeld(box: BoxState, { lane, message: { key } }: StoredRow): boolean {
  return key !== undefined && box.holds.has(holdId({ lane, name: key }));
}

/** As a relay sees it. */
export function seen(box: BoxState, row: StoredRow): Row {
  const { lane, position, attempts, crashes, turn = 0 } = row;
  const found = { lane, position, attempts, crashes, message: messageOf(row.message) };
  return row.status === "waiting"
    ? { ...found, waiting: true, held: false, turn }
    : { ...found, waiting: false, held: isHeld(box, row) };
}
