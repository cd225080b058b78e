import { laneOf } from "../../internal/lane.js";
import type { Message } from "../../message/message.js";
import type { Row } from "../../store.js";
import type { SettledRow } from "../settle-plan.js";

/** A message as a box in memory stores it. Rows are never changed, only replaced. */
export interface StoredRow extends SettledRow {
  readonly message: Message;
  readonly createdAt: number;
  /** When it reached its status or last failed there. */
  readonly updatedAt: number;
  /** The revision of its box at which it reached its status. */
  readonly revision: number;
  /** For a scheduled row: when it is due. */
  readonly dueAt?: number;
}

export function newRow(message: Message, position: number, now: number): StoredRow {
  return {
    lane: laneOf(message.key ?? message.id),
    position,
    message: copyOf(message),
    attempts: 0,
    crashes: 0,
    revision: 0,
    createdAt: now,
    updatedAt: now,
    failures: [],
  };
}

/** A row as a relay sees it. */
export function seen(row: StoredRow, held: boolean): Row {
  const { lane, position, message, attempts, crashes, turn = 0 } = row;
  const waiting = row.hold !== undefined;
  return { lane, position, message: copyOf(message), attempts, crashes, waiting, held, ...(waiting && { turn }) };
}

/** Copies a message. Its bytes are its only mutable part, so the copy protects the box from writes through a row. */
export function copyOf(message: Message): Message {
  return Object.freeze({ ...message, data: new Uint8Array(message.data) });
}

export function byPosition(one: Pick<Row, "position">, other: Pick<Row, "position">): number {
  return one.position - other.position;
}

/** The approximate size of a row in bytes. */
export function bytesOf({ message }: Row): number {
  return message.data.byteLength + 512;
}

/** The first rows, including the one with which they reach this many bytes. */
export function upToBytes<R extends Row>(rows: readonly R[], maxBytes: number): R[] {
  let bytes = 0;
  const end = rows.findIndex((row) => {
    const isFull = bytes >= maxBytes;
    bytes += bytesOf(row);
    return isFull;
  });
  return end < 0 ? [...rows] : rows.slice(0, end);
}

/** The JSON form of something with a message: its data is base64. */
export type WithData<T> = Omit<T, "message"> & { readonly message: Omit<Message, "data"> & { readonly data: string } };

export function toJson<T extends { readonly message: Message }>({ message, ...rest }: T): WithData<T> {
  const { buffer, byteOffset, byteLength } = message.data;
  return { ...rest, message: { ...message, data: Buffer.from(buffer, byteOffset, byteLength).toString("base64") } };
}

export function fromJson<T extends { readonly message: Message }>({ message, ...rest }: WithData<T>): T {
  return { ...rest, message: copyOf({ ...message, data: Buffer.from(message.data, "base64") }) } as unknown as T;
}
