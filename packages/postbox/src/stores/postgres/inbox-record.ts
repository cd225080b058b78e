import { laneOf } from "../../internal/lane.js";
import type { Arrival } from "../../store.js";
import { messageValues } from "../message-record.js";
import { fieldOf, memoryColumns } from "./inbox-sql.js";
import { messageColumns } from "./message-columns.js";

/** The message's own time in ms; null if it has none or it cannot be parsed. */
export function timeOf({ message: { time } }: Arrival): number | null {
  const ms = time === undefined ? Number.NaN : Date.parse(time);
  return Number.isNaN(ms) ? null : ms;
}

/** A lock timeout as a setting. 0 would mean no timeout. */
export function lockLimit(ms: number): string {
  return `${Math.max(1, Math.ceil(ms))}ms`;
}

/** What the inbox remembers of a message, in the order of its columns. */
export function memoryValues({ consumer, id, message, origin, handler, hash }: Arrival): (string | null)[] {
  const { type, source, topic, extensions } = message;
  const { dataversion, correlationid } = extensions;
  const optional = [dataversion, origin?.partition, origin?.offset, correlationid, handler, hash];
  return [consumer, id, type, source, topic, ...optional.map((value) => (value === undefined ? null : String(value)))];
}

/** An arrival as the JSON that the statements of the inbox read. */
export type InboxRecord = Readonly<Record<string, unknown>> & { readonly lane: number };

/** The record of an arrival. */
export function recordOf(arrival: Arrival): InboxRecord {
  const { message, storePayload = false } = arrival;
  const values = messageValues(message);
  const memory = memoryValues(arrival);
  return {
    ...Object.fromEntries(memoryColumns.map(([name], index) => [fieldOf(name), memory[index]])),
    payload: storePayload,
    at: timeOf(arrival),
    lane: laneOf(message.key ?? message.id),
    ...Object.fromEntries(
      messageColumns.map(([name, type]) => [
        `m_${name}`,
        type === "bytea" ? (values[name] as Buffer).toString("base64") : values[name],
      ]),
    ),
  };
}
