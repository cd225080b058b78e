import { PermanentError } from "../../errors.js";
import { answered } from "../../internal/answer.js";
import { reasonOf } from "../../internal/reason-of.js";
import { fromCloudEventJson, toCloudEventJson } from "../../message/cloudevents-json.js";
import {
  createMessage,
  type Extensions,
  type ExtensionValue,
  type Message,
  type MessageInput,
} from "../../message/message.js";
import { brokerHeaders } from "../../message/reserved-headers.js";
import type { KafkaRecord, ReceivedRecord } from "./client.js";

/*
 * The Kafka binding of CloudEvents. In binary mode, the default, the value is the data, and the attributes are headers
 * with a prefix. In structured mode, the value is the whole event as JSON. The key of the record is the message's key,
 * and application headers are headers of the record, in both modes. Headers are UTF-8.
 */

/** How a CloudEvent becomes a record: attributes as headers, or all as one JSON value. */
export type KafkaContentMode = "binary" | "structured";

/** A record that is no CloudEvent, such as one of Debezium or of a service that writes plain JSON. */
export interface ForeignRecord {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly timestamp: Date;
  /** Absent if the record has no key. */
  readonly key?: Uint8Array;
  /** Absent for a tombstone. */
  readonly value?: Uint8Array;
  /** As text. Of several headers with one name, the last one. */
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * Maps a foreign record to a message. Give it an id that every delivery of the record has, such as one from the
 * record, or its topic, partition and offset; the inbox recognizes copies by it. If it throws, the record is parked.
 */
export type FromForeign = (record: ForeignRecord) => Omit<MessageInput, "topic">;

const prefix = "ce_";
const contentTypeHeader = "content-type";
const structuredType = "application/cloudevents+json; charset=utf-8";
const topicHeader = "postbox-topic";
/** Names of extensions that are numbers or flags. Headers are text, so their types would be lost. */
const typedHeader = "postbox-typed";
/** Prefixes header names that would not arrive as headers: those of this binding, and `__proto__`. */
const hiddenHeader = "postbox-header-";
const control = new RegExp(`^(ce_|content-type$|postbox-|${brokerHeaders}|__proto__$)`, "i");
const headerName = /^[A-Za-z0-9._-]{1,128}$/;
const mostHeaderBytes = 1024 * 1024;

/** The record of a message that goes to `topic`. */
export function toRecord(message: Message, topic: string, mode: KafkaContentMode): KafkaRecord {
  const { key, data, datacontenttype } = message;
  const headers: Record<string, Buffer> = {};
  const structured = mode === "structured" || isEventType(datacontenttype);
  headers[contentTypeHeader] = repeated(structured ? structuredType : datacontenttype);
  if (!structured) addAttributes(headers, message);
  for (const name of Object.keys(message.headers)) {
    headers[control.test(name) ? hiddenHeader + name : name] = Buffer.from(message.headers[name] as string);
  }
  if (message.topic !== topic) headers[topicHeader] = Buffer.from(message.topic);
  return {
    key: key === undefined ? null : Buffer.from(key),
    // Never null, which would be a tombstone.
    value: structured
      ? Buffer.from(toCloudEventJson(message))
      : Buffer.from(data.buffer, data.byteOffset, data.byteLength),
    headers,
  };
}

/**
 * Whether a content type marks a value as a whole event. Data of such a type would be mistaken for one in binary mode.
 */
function isEventType(contentType: string | undefined): boolean {
  return contentType?.toLowerCase().startsWith("application/cloudevents") ?? false;
}

/** Assigned name by name: this runs for every message, and copying objects would cost most of it. */
function addAttributes(headers: Record<string, Buffer>, message: Message): void {
  const { specversion, id, source, type, subject, time, dataschema, key, extensions } = message;
  headers.ce_specversion = repeated(specversion);
  headers.ce_id = Buffer.from(id);
  headers.ce_source = repeated(source);
  headers.ce_type = repeated(type);
  if (subject !== undefined) headers.ce_subject = Buffer.from(subject);
  if (time !== undefined) headers.ce_time = Buffer.from(time);
  if (dataschema !== undefined) headers.ce_dataschema = Buffer.from(dataschema);
  if (key !== undefined) headers.ce_partitionkey = Buffer.from(key);
  const typed: string[] = [];
  for (const name of Object.keys(extensions)) {
    const value = extensions[name];
    // A row that was inserted by SQL may have an extension with an attribute's name: the attribute wins.
    if (value === undefined || headers[prefix + name] !== undefined) continue;
    headers[prefix + name] = Buffer.from(String(value));
    if (typeof value !== "string") typed.push(name);
  }
  if (typed.length > 0) headers[typedHeader] = Buffer.from(typed.join());
}

const mostRepeated = 1000;
const bytesOf = new Map<string, Buffer>();

/** The bytes of a text that many messages have. Nobody changes them. */
function repeated(text: string): Buffer {
  let bytes = bytesOf.get(text);
  if (bytes === undefined) {
    bytes = Buffer.from(text);
    if (bytesOf.size < mostRepeated) bytesOf.set(text, bytes);
  }
  return bytes;
}

export interface FromRecordOptions {
  readonly topic: string;
  readonly partition: number;
  readonly maxMessageBytes: number;
  readonly fromForeign?: FromForeign;
}

/** Reads what a broker delivered. Throws a `PermanentError` if it is no message. */
export function fromRecord(record: ReceivedRecord, options: FromRecordOptions): Message {
  const size = record.value?.length ?? 0;
  if (size > options.maxMessageBytes) {
    const text =
      `a message of ${size} bytes is larger than maxMessageBytes, ${options.maxMessageBytes}; raise that, or send a ` +
      "reference instead";
    throw new PermanentError(text, { code: "message-too-large" });
  }
  const found = sorted(record.headers);
  const { headers, contentType, topic = options.topic } = found;
  // The limit applies to the value, as a sender's does. The protocol limits attributes and headers.
  const maxMessageBytes = options.maxMessageBytes + mostHeaderBytes;
  if (isEventType(contentType)) {
    const message = fromCloudEventJson(textOf(record.value), { headers, maxMessageBytes, topic });
    const key = message.key === undefined ? keyOf(record) : undefined;
    return key === undefined ? message : withKey(message, key, maxMessageBytes);
  }
  try {
    const { specversion, id } = found;
    if (specversion === undefined && id === undefined) {
      return fromForeignRecord(record, headers, keyOf(record), options, maxMessageBytes);
    }
    if (specversion !== undefined && specversion !== "1.0") throw new Error(`specversion is ${specversion}, not 1.0`);
    const input: MessageInput = {
      id: id as string,
      source: found.source as string,
      type: found.type as string,
      subject: found.subject,
      time: found.time,
      dataschema: found.dataschema,
      datacontenttype: contentType,
      extensions: found.extensions && withTypes(found.extensions, found.typed),
      key: found.partitionkey ?? keyOf(record),
      headers,
      topic,
      data: record.value ?? undefined,
    };
    return createMessage(input, { maxMessageBytes, foreign: true });
  } catch (cause) {
    if (cause instanceof PermanentError) throw cause;
    throw new PermanentError(`not a CloudEvents 1.0 event: ${reasonOf(cause)}`, { code: "message-invalid", cause });
  }
}

function withKey(message: Message, key: string, maxMessageBytes: number): Message {
  return createMessage({ ...message, key }, { maxMessageBytes, foreign: true });
}

function fromForeignRecord(
  record: ReceivedRecord,
  headers: Readonly<Record<string, string>> | undefined,
  key: string | undefined,
  { topic, partition, fromForeign }: FromRecordOptions,
  maxMessageBytes: number,
): Message {
  if (fromForeign === undefined) {
    throw new Error("it has no attributes of CloudEvents; give 'fromForeign' to read records of other kinds");
  }
  const { offset, timestamp } = record;
  const all = Object.entries(record.headers).map(([name, value]) => [name, textOf(lastOf(value))]);
  let input: Omit<MessageInput, "topic">;
  try {
    input = answered(
      fromForeign({
        topic,
        partition,
        offset,
        timestamp: new Date(timestamp),
        ...(record.key && { key: record.key }),
        ...(record.value && { value: record.value }),
        headers: Object.fromEntries(all),
      }),
    );
  } catch (cause) {
    throw new PermanentError(`'fromForeign' threw: ${reasonOf(cause)}; correct 'fromForeign'`, {
      code: "message-invalid",
      cause,
    });
  }
  const time = input.time ?? new Date(timestamp);
  return createMessage({ headers, ...input, key: input.key ?? key, time, topic }, { maxMessageBytes, foreign: true });
}

/** Gives these extensions their types again. */
function withTypes(extensions: Readonly<Record<string, string>>, typed: readonly string[]): Extensions {
  if (typed.length === 0) return extensions;
  const all: Record<string, ExtensionValue> = { ...extensions };
  for (const name of typed) {
    const text = extensions[name];
    if (text === "true" || text === "false") all[name] = text === "true";
    else if (text !== undefined && /^-?\d{1,10}$/.test(text)) all[name] = Number(text);
  }
  return all;
}

/** The attributes that are no extensions. */
const attributeNames = [
  "specversion",
  "id",
  "source",
  "type",
  "subject",
  "time",
  "dataschema",
  "partitionkey",
] as const;

type Found = { [name in (typeof attributeNames)[number]]: string | undefined } & {
  extensions: Record<string, string> | undefined;
  headers: Readonly<Record<string, string>> | undefined;
  contentType: string | undefined;
  topic: string | undefined;
  typed: readonly string[];
};

const attributeOf = new Map(attributeNames.map((name) => [prefix + name, name]));

/**
 * Separates attributes from application headers. This runs for every message: the fields are there from the start, and
 * collections only if there is anything to collect.
 */
function sorted(all: KafkaRecord["headers"]): Found {
  const found: Found = {
    specversion: undefined,
    id: undefined,
    source: undefined,
    type: undefined,
    subject: undefined,
    time: undefined,
    dataschema: undefined,
    partitionkey: undefined,
    extensions: undefined,
    headers: undefined,
    contentType: undefined,
    topic: undefined,
    typed: [],
  };
  let own: [string, string][] | undefined;
  for (const name of Object.keys(all)) {
    const value = textOf(lastOf(all[name] as Uint8Array | readonly Uint8Array[]));
    const attribute = attributeOf.get(name);
    if (attribute !== undefined) found[attribute] = value;
    else if (name === contentTypeHeader) found.contentType = value;
    else if (name.startsWith(prefix)) {
      found.extensions ??= {};
      found.extensions[name.slice(prefix.length).toLowerCase()] = value;
    } else if (name === topicHeader) found.topic = value;
    else if (name === typedHeader) found.typed = value.split(",");
    else if (name.toLowerCase() === contentTypeHeader) found.contentType ??= value;
    else if (name.startsWith(hiddenHeader)) {
      own ??= [];
      own.push([name.slice(hiddenHeader.length), value]);
    } else if (!control.test(name) && headerName.test(name)) {
      own ??= [];
      own.push([name, value]);
    }
  }
  // Not by assignment, which does something else for names such as `__proto__`.
  if (own !== undefined) found.headers = Object.fromEntries(own);
  return found;
}

function lastOf(value: Uint8Array | readonly Uint8Array[]): Uint8Array | null {
  return value instanceof Uint8Array ? value : (value?.at(-1) ?? null);
}

/** The key as text, if it is text. */
function keyOf({ key }: KafkaRecord): string | undefined {
  if (key === null || key.length === 0) return undefined;
  const text = textOf(key);
  return Buffer.from(text).equals(key) ? text : undefined;
}

function textOf(bytes: Uint8Array | null): string {
  if (bytes === null) return "";
  return (Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)).toString();
}
