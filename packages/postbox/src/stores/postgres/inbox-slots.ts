import { inboxTable } from "./names.js";

/*
 * What is remembered lies in sixteen parts, each for a week, used in turn: a message's own time, which never changes, says in
 * which one it is, so that one index per part keeps it unique, and a part whose week is long past is emptied at once. What has
 * no time, or one far ahead, lies apart and is counted from its arrival.
 */

const slotCount = 16;
const slotMs = 7 * 24 * 3_600_000;
/** Of what lies apart. */
export const untimedSlot = -1;
export const slots: readonly number[] = [untimedSlot, ...Array.from({ length: slotCount }, (_, slot) => slot)];

export function slotTable(schema: string, slot: number): string {
  const name = slot === untimedSlot ? "untimed" : String(slot).padStart(2, "0");
  return `"${schema}"."inbox_message_${name}"`;
}

/** The slot of a time, which may be NULL. */
export function slotOf(time: string): string {
  const week = `floor(extract(epoch FROM ${time}) / ${slotMs / 1000})::bigint`;
  const ahead = `${time} > statement_timestamp() + interval '${slotMs} milliseconds'`;
  return `CASE WHEN ${time} IS NULL OR ${ahead} THEN ${untimedSlot} ELSE mod(${week}, ${slotCount}) END`;
}

/** The slot of a time in ms, as far as it does not depend on the clock. */
export function slotAt(ms: number | null): number {
  return ms === null ? untimedSlot : Math.floor(ms / slotMs) % slotCount;
}

/** The beginning of the first week that is remembered for $1 ms: everything before it may be forgotten. */
export const firstWeek = `to_timestamp(floor((extract(epoch FROM clock_timestamp()) - $1::double precision / 1000)
      / ${slotMs / 1000}) * ${slotMs / 1000})`;

/** The slots whose messages are all older than $1 ms. Of the others, one is always to come. */
export const oldSlotsSql = `
    SELECT slot FROM generate_series(0, ${slotCount - 1}) AS slot
    WHERE slot NOT IN (
      SELECT mod(week, ${slotCount}) FROM generate_series(
        floor((extract(epoch FROM clock_timestamp()) - $1::double precision / 1000) / ${slotMs / 1000})::bigint,
        floor(extract(epoch FROM clock_timestamp()) / ${slotMs / 1000})::bigint + 1) AS week)
    ORDER BY slot`;

export function createSlots(schema: string): string {
  const table = inboxTable(schema);
  // A row that is marked as processed later finds room beside itself.
  return slots
    .map(
      (slot) =>
        `    CREATE TABLE ${slotTable(schema, slot)} PARTITION OF ${table} FOR VALUES IN (${slot}) WITH (fillfactor = 90);`,
    )
    .join("\n");
}
