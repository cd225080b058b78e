import { laneOf } from "../../internal/lane.js";
import type { Extensions, Message } from "../../message/message.js";

/** The columns that hold a message, the same in every table of a box, each with its type. */
const columns = [
  ["id", "text"],
  ["source", "text"],
  ["type", "text"],
  ["subject", "text"],
  ["time", "text"],
  ["content_type", "text"],
  ["data_schema", "text"],
  ["event_version", "text"],
  ["topic", "text"],
  ["key", "text"],
  ["extensions", "jsonb"],
  ["headers", "jsonb"],
  ["data", "bytea"],
] as const;

export type MessageColumn = (typeof columns)[number][0];

export const messageColumns: readonly (readonly [MessageColumn, string])[] = columns;

const rare: ReadonlySet<MessageColumn> = new Set(["subject", "data_schema", "event_version"]);

/** Those that most messages have no more than: the others need not be sent as nothing. */
export const usualColumns: typeof messageColumns = columns.filter(([name]) => !rare.has(name));

/** The columns of this message. */
export function columnsOf({ subject, dataschema, extensions }: Message): typeof messageColumns {
  const isUsual = subject === undefined && dataschema === undefined && extensions.dataversion === undefined;
  return isUsual ? usualColumns : messageColumns;
}

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
  readonly data: Uint8Array;
}

/** The columns of a `MessageRecord`: the version is among the extensions, too. */
export const selectedColumns = columns.filter(([name]) => name !== "event_version");

/** The select list that makes a `MessageRecord`. */
export function messageSelection(table: string): string {
  return selectedColumns
    .map(([name, type]) => (type === "jsonb" ? `${table}.${name}::text AS ${name}` : `${table}.${name}`))
    .join(", ");
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** Most messages have none: one object for all of them, and no parsing. */
const nothing = Object.freeze({});

function parsed<T extends object>(json: string): T {
  return json === "{}" ? (nothing as T) : Object.freeze(JSON.parse(json) as T);
}

/** The message that was appended, exactly: what was absent is absent. */
export function messageFrom(record: MessageRecord): Message {
  const { data } = record;
  const message: Mutable<Message> = {
    specversion: "1.0",
    id: record.id,
    source: record.source,
    type: record.type,
    datacontenttype: record.content_type,
    extensions: parsed<Extensions>(record.extensions),
    headers: parsed<Record<string, string>>(record.headers),
    topic: record.topic,
    data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
  };
  if (record.subject !== null) message.subject = record.subject;
  if (record.time !== null) message.time = record.time;
  if (record.data_schema !== null) message.dataschema = record.data_schema;
  if (record.key !== null) message.key = record.key;
  return Object.freeze(message);
}
