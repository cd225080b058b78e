import type { Lane, Row, Settlement } from "../../store.js";
import { holdOfKey } from "../settle-plan.js";
import { errorText } from "./error-text.js";

/*
 * Rows as the parameters of a statement: one array per column. Arrays of numbers and plain texts are written here,
 * because a driver escapes each element.
 */

/** An array of numbers in PostgreSQL's text format. */
export function arrayOf<T>(items: readonly T[], number: (item: T) => number): string {
  return `{${items.map(number).join(",")}}`;
}

function textArrayOf<T>(items: readonly T[], text: (item: T) => string): string {
  if (items.length === 0) return "{}";
  const texts = items.map(text);
  const isPlain = texts.every((each) => !each.includes('"') && !each.includes("\\"));
  return `{"${(isPlain ? texts : texts.map((each) => each.replace(/["\\]/g, "\\$&"))).join('","')}"}`;
}

/** The lanes and their epochs. */
export function fenceOf(lanes: readonly Lane[]): [string, string] {
  return [arrayOf(lanes, ({ lane }) => lane), arrayOf(lanes, ({ epoch }) => epoch)];
}

/** The hold that a sent row waited under, in case the row is gone already: no other row may still wait for it. */
function holdKeyOf({ row, to }: Settlement): string {
  if (to !== "sent" || !row.waiting) return "";
  return holdOfKey(row.message);
}

/** The columns that identify rows. */
export function rowColumns(rows: readonly Row[]) {
  return {
    lane: arrayOf(rows, ({ lane }) => lane),
    position: arrayOf(rows, ({ position }) => position),
    id: textArrayOf(rows, ({ message }) => message.id),
    waiting: rows.map(({ waiting }) => waiting),
  };
}

/**
 * One array per column: lane, position, id, waiting, turn, fate, tries, retry_in_ms, error (or the reason of a drop),
 * held_under.
 */
function settlementColumns(settlements: readonly Settlement[]): unknown[] {
  const { lane, position, id, waiting } = rowColumns(settlements.map(({ row }) => row));
  const fates = settlements.map((settlement) =>
    settlement.to === "sent" || settlement.to === "dropped" ? undefined : settlement,
  );
  return [
    lane,
    position,
    id,
    waiting,
    settlements.map(({ row }) => row.turn ?? 0),
    settlements.map(({ to }) => to),
    fates.map((fate) => fate?.attempts ?? 0),
    fates.map((fate) => {
      if (fate?.to === "parked") return fate.hold ? Number.POSITIVE_INFINITY : Number.NaN;
      return fate?.to === "wait" ? (fate.retryInMs ?? Number.NaN) : Number.NaN;
    }),
    settlements.map((settlement, index) => {
      if (settlement.to === "dropped") return settlement.reason;
      const error = fates[index]?.error;
      return error === undefined ? "" : errorText(error);
    }),
    settlements.map(holdKeyOf),
  ];
}

/** The parameters of a settle: rows of `pending` that were sent, which is the usual case, come without a settlement. */
export function settleColumns(lanes: readonly Lane[], settlements: readonly Settlement[]): unknown[] {
  const sent: Row[] = [];
  const others: Settlement[] = [];
  for (const settlement of settlements) {
    if (settlement.to === "sent" && !settlement.row.waiting) sent.push(settlement.row);
    else others.push(settlement);
  }
  const { lane, position, id } = rowColumns(sent);
  return [...fenceOf(lanes), lane, position, id, ...settlementColumns(others)];
}
