import { PostboxError } from "../errors.js";
import { laneOf } from "../internal/lane.js";
import type { Extensions, Message } from "../message/message.js";

/* A message as a row, for any database with columns of text and bytes: how columns are written and read. */

/** The columns that hold a message, the same in every table of a box. */
export const messageColumnNames = [
  "id",
  "source",
  "type",
  "subject",
  "time",
  "content_type",
  "data_schema",
  "event_version",
  "topic",
  "key",
  "extensions",
  "headers",
  "data",
] as const;

export type MessageColumn = (typeof messageColumnNames)[number];

/** The values of a message's columns, and its lane. Values that it does not have are undefined. */
export function messageValues(message: Message): { readonly lane: number } & Readonly<Record<MessageColumn, unknown>> {
  const { data, extensions } = message;
  const { dataversion } = extensions;
  return {
    lane: laneOf(message.key ?? message.id),
    id: message.id,
    source: message.source,
    type: message.type,
    subject: message.subject,
    time: message.time,
    content_type: message.datacontenttype,
    data_schema: message.dataschema,
    event_version: dataversion === undefined ? undefined : String(dataversion),
    topic: message.topic,
    key: message.key,
    extensions,
    headers: message.headers,
    // The same bytes as a Buffer, which every library passes on as bytes.
    data: Buffer.from(data.buffer, data.byteOffset, data.byteLength),
  };
}

/**
 * Data larger than this is neither stored nor read. A driver reads bytes as a text of two characters each. A text
 * longer than JavaScript's limit would end the process before the message could be identified.
 */
export const mostDataBytes = 128 * 1024 * 1024;

/** A message as it is read back. JSON columns are text, so that the user's parser for `jsonb` does not apply. */
export interface MessageRecord {
  readonly id: string;
  readonly source: string;
  readonly type: string;
  readonly subject: string | null;
  readonly time: string | null;
  readonly content_type: string;
  readonly data_schema: string | null;
  readonly topic: string;
  readonly key: string | null;
  readonly extensions: string;
  readonly headers: string;
  /** NULL if it is too large to be read. */
  readonly data: Uint8Array | null;
}

/** The content type of nearly every message. */
export const usualContentType = "application/json";

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** Most messages have none, so they share one object and need no parsing. */
const nothing = Object.freeze({});

/** What a row contains. */
export interface ReadMessage {
  /**
   * Exactly the message that was appended; absent fields stay absent. If it is unreadable, the parts that could be
   * read.
   */
  readonly message: Message;
  /**
   * What is wrong with the row, such as "headers is not an object of strings". Absent if nothing is. Another program
   * wrote such a row while the table's checks were off. It must not be sent, but can be parked and discarded.
   */
  readonly unreadable?: string;
}

/** The error of a row that is parked because it is `unreadable`. */
export function faultOf(unreadable: string): PostboxError {
  return new PostboxError(
    "message-invalid",
    `the stored row is not a valid message: ${unreadable}; it was not written by this library. Look at it with ` +
      "admin.get(id), then discard it",
  );
}

/** Reads a row. Never throws, whatever the columns contain. */
export function messageFrom(record: MessageRecord): ReadMessage {
  const extensions = objectIn<Extensions>(record.extensions, isScalar);
  const headers = objectIn<Record<string, string>>(record.headers, isText);
  const { key, data } = record;
  const message: Mutable<Message> = {
    specversion: "1.0",
    id: record.id,
    source: record.source,
    type: record.type,
    datacontenttype: record.content_type,
    extensions: extensions ?? readable<Extensions>(record.extensions, isScalar),
    headers: headers ?? readable<Record<string, string>>(record.headers, isText),
    topic: record.topic,
    data: Buffer.isBuffer(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : (data ?? noBytes),
  };
  if (record.subject !== null) message.subject = record.subject;
  if (record.time !== null) message.time = record.time;
  if (record.data_schema !== null) message.dataschema = record.data_schema;
  if (key !== null) message.key = key;
  Object.freeze(message);
  // A fast path, because this runs for every row and nearly always all fields are there.
  const { id, source, type, topic } = record;
  if (data && extensions && headers && id && source && type && topic && isKey(key)) return { message };
  const faults = required.filter((name) => !record[name]).map((name) => `${name} is empty`);
  if (extensions === undefined) faults.unshift("extensions is not an object of scalars");
  if (headers === undefined) faults.unshift("headers is not an object of strings");
  if (data === null) faults.push(`data has more than ${mostDataBytes} bytes`);
  if (!isKey(key)) faults.push("key is empty or begins with a control character");
  return { message, unreadable: faults.join(", ") };
}

const noBytes = new Uint8Array();
const required = ["id", "source", "type", "topic"] as const;

/** False for an empty text, too: its first character code is NaN, which compares false. */
const isKey = (key: string | null) => key === null || key.charCodeAt(0) >= 0x20;
const isText = (value: unknown) => typeof value === "string";
const isScalar = (value: unknown) => isText(value) || typeof value === "number" || typeof value === "boolean";

/** Parses an object from JSON. Undefined if it is something else, or a member does not fit. */
function objectIn<T extends object>(json: string, fits: (value: unknown) => boolean): T | undefined {
  if (json === "{}") return nothing as T;
  const value = JSON.parse(json);
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject && Object.values(value).every(fits) ? Object.freeze(value as T) : undefined;
}

/** The members of such an object that fit; none if it is something else. */
function readable<T extends object>(json: string, fits: (value: unknown) => boolean): T {
  const value = JSON.parse(json);
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return Object.freeze(isObject ? Object.fromEntries(Object.entries(value).filter(([, each]) => fits(each))) : {}) as T;
}
