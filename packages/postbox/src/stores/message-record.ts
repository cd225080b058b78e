import { laneOf } from "../internal/lane.js";
import type { Extensions, Message } from "../message/message.js";

/*
 * A message as a row of any database that has columns of text and bytes: what its columns hold, and what is made of them again.
 */

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

/** One message as the values of its columns, and its lane; what it does not have is undefined. */
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
    // The same bytes, in the form that every library passes on as bytes.
    data: Buffer.from(data.buffer, data.byteOffset, data.byteLength),
  };
}

/**
 * More data than this is not stored, nor read. A driver reads bytes as a text of two characters each, and a longer text than JavaScript
 * can have would end the process before anybody could tell which message it was.
 */
export const mostDataBytes = 128 * 1024 * 1024;

/** A message as it is read back: JSON as text, so that no parser the user set for `jsonb` comes in between. */
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
  /** NULL if there is too much of it to be read. */
  readonly data: Uint8Array | null;
}

/** What nearly every message holds. */
export const usualContentType = "application/json";

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** Most messages have none: one object for all of them, and no parsing. */
const nothing = Object.freeze({});

/** What a row holds. */
export interface ReadMessage {
  /** The message that was appended, exactly: what was absent is absent. If it is unreadable, what could be read of it. */
  readonly message: Message;
  /**
   * What is wrong with the row, such as "headers is not an object of strings". Such a row was not written by this library, and
   * the table's checks were not in force: it must not be sent, and can be parked and discarded as it is. Absent otherwise.
   */
  readonly unreadable?: string;
}

/** Reads a row. Never throws over what the columns hold. */
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
  // Nearly always all is there, and this is done for every row.
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

/** Also an empty text is none: it has no first character, and NaN is not above anything. */
const isKey = (key: string | null) => key === null || key.charCodeAt(0) >= 0x20;
const isText = (value: unknown) => typeof value === "string";
const isScalar = (value: unknown) => isText(value) || typeof value === "number" || typeof value === "boolean";

/** The object in a text of JSON, or undefined if it is something else, or has other members than these. */
function objectIn<T extends object>(json: string, fits: (value: unknown) => boolean): T | undefined {
  if (json === "{}") return nothing as T;
  const value = JSON.parse(json);
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject && Object.values(value).every(fits) ? Object.freeze(value as T) : undefined;
}

/** What there is of such an object. */
function readable<T extends object>(json: string, fits: (value: unknown) => boolean): T {
  const value = JSON.parse(json);
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return Object.freeze(isObject ? Object.fromEntries(Object.entries(value).filter(([, each]) => fits(each))) : {}) as T;
}
