import type { Options } from "amqplib";
import { PermanentError } from "../../errors.js";
import { fromCloudEventJson, toCloudEventJson } from "../../message/cloudevents-json.js";
import { createMessage, type Extensions, type ExtensionValue, type Message } from "../../message/message.js";
import { brokerHeaders } from "../../message/reserved-headers.js";

/*
 * The AMQP binding of CloudEvents. In binary mode, the default, the body is the data, and the attributes are headers
 * with a prefix. In structured mode, the body is the whole event as JSON. Application headers are AMQP headers in both
 * modes.
 */

/** How a CloudEvent becomes an AMQP message: attributes as headers, or all as one JSON body. */
export type ContentMode = "binary" | "structured";

export interface AmqpMessage {
  readonly content: Buffer;
  readonly properties: AmqpProperties;
}

/** Of every published message: persistent, and returned if no queue takes it. */
export interface AmqpProperties extends Options.Publish {
  readonly persistent: true;
  readonly mandatory: true;
  readonly headers: Record<string, unknown>;
}

/** The parts of a received message that matter here. */
export interface ReceivedAmqp {
  readonly content: Buffer;
  readonly properties: {
    readonly contentType?: unknown;
    readonly messageId?: unknown;
    readonly type?: unknown;
    readonly headers?: Readonly<Record<string, unknown>> | undefined;
  };
}

const prefix = "cloudEvents:";
/** The prefix of publishers that cannot write a colon. */
const otherPrefix = "cloudEvents_";
const structuredType = "application/cloudevents+json; charset=utf-8";
export const topicHeader = "postbox-topic";
/**
 * Prefixes header names that would not arrive: a client loses `__proto__` when it reads headers into an object, and
 * brokers act upon the names that `control` matches.
 */
const hiddenHeader = "postbox-header-";
const lostName = "__proto__";
/** The names that brokers, this binding and the parking lot write, and those that brokers act upon. */
const control = new RegExp(`^(cloudEvents[:_]|postbox-|${brokerHeaders}|x-opt-|x-received-from$|CC$|BCC$)`, "i");
const mostHeaderBytes = 1024 * 1024;
const headerName = /^[A-Za-z0-9._-]{1,128}$/;
const extensionName = /^[a-z0-9]+$/;

export function toAmqp(message: Message, mode: ContentMode): AmqpMessage {
  const { id: messageId, type, data } = message;
  const common = { messageId, type, persistent: true, mandatory: true } as const;
  if (mode === "structured" || isEventType(message.datacontenttype)) {
    return {
      content: Buffer.from(toCloudEventJson(message)),
      properties: { ...common, contentType: structuredType, headers: withBeside(message, {}) },
    };
  }
  return {
    content: Buffer.from(data.buffer, data.byteOffset, data.byteLength),
    properties: {
      ...common,
      contentType: message.datacontenttype,
      headers: withBeside(message, attributesOf(message)),
    },
  };
}

/**
 * Whether a content type marks a body as a whole event. Data of such a type would be mistaken for one in binary mode.
 */
function isEventType(contentType: string | undefined): boolean {
  return contentType?.toLowerCase().startsWith("application/cloudevents") ?? false;
}

/** Assigned name by name, here and below: this runs for every message, and copying objects would cost most of it. */
function attributesOf(message: Message): Record<string, unknown> {
  const { specversion, id, source, type, subject, time, dataschema, key, extensions } = message;
  const headers: Record<string, unknown> = {
    "cloudEvents:specversion": specversion,
    "cloudEvents:id": id,
    "cloudEvents:source": source,
    "cloudEvents:type": type,
  };
  if (subject !== undefined) headers["cloudEvents:subject"] = subject;
  if (time !== undefined) headers["cloudEvents:time"] = time;
  if (dataschema !== undefined) headers["cloudEvents:dataschema"] = dataschema;
  if (key !== undefined) headers["cloudEvents:partitionkey"] = key;
  for (const name of Object.keys(extensions)) {
    const value = extensions[name];
    // A row that was inserted by SQL may have a header of the same name: the attribute wins.
    if (value !== undefined && headers[prefix + name] === undefined) headers[prefix + name] = value;
  }
  return headers;
}

function withBeside({ topic, headers }: Message, all: Record<string, unknown>): Record<string, unknown> {
  for (const name of Object.keys(headers)) {
    all[name === lostName || control.test(name) ? hiddenHeader + name : name] = headers[name];
  }
  all[topicHeader] = topic;
  return all;
}

export interface FromAmqpOptions {
  /** The exchange that it was published to, if known. */
  readonly exchange: string;
  /** Extensions are headers without a prefix, and the type is the property of that name. */
  readonly unprefixed: boolean;
  readonly maxMessageBytes: number;
}

/** Reads what a broker delivered. Throws a `PermanentError` if it is no CloudEvents 1.0 event. */
export function fromAmqp({ content, properties }: ReceivedAmqp, options: FromAmqpOptions): Message {
  const all = properties.headers ?? {};
  const { attributes, headers } = sorted(all, options.unprefixed);
  const named = all[topicHeader];
  const topic =
    (typeof named === "string" ? named : undefined) ?? (options.exchange === "" ? undefined : options.exchange);
  if (content.length > options.maxMessageBytes) {
    const text =
      `a message of ${content.length} bytes is larger than maxMessageBytes, ${options.maxMessageBytes}; raise ` +
      "that, or send a reference instead";
    throw new PermanentError(text, { code: "message-too-large" });
  }
  // The limit applies to the body, as a sender's does. The protocol limits attributes and headers.
  const maxMessageBytes = options.maxMessageBytes + mostHeaderBytes;
  const contentType = textOf(properties.contentType);
  if (isEventType(contentType)) {
    return fromCloudEventJson(content.toString("utf8"), {
      headers,
      maxMessageBytes,
      ...(topic !== undefined && { topic }),
    });
  }
  const { specversion = "1.0", id, source, type, subject, time, dataschema, ...extensions } = attributes;
  try {
    if (specversion !== "1.0") throw new Error(`specversion is ${String(specversion)}, not 1.0`);
    return createMessage(
      {
        id: (textOf(id) ?? textOf(properties.messageId)) as string,
        source: textOf(source) as string,
        type: (textOf(type) ?? textOf(properties.type)) as string,
        subject: textOf(subject),
        time: textOf(time),
        dataschema: textOf(dataschema),
        datacontenttype: contentType,
        extensions: { ...extensions, ...(options.unprefixed && unprefixedExtensions(all)) } as Extensions,
        headers,
        topic,
        data: content,
      },
      { maxMessageBytes, foreign: true },
    );
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new PermanentError(`not a CloudEvents 1.0 event: ${why}`, { code: "message-invalid", cause });
  }
}

/** Only headers with legal names of extensions. */
function unprefixedExtensions(headers: Readonly<Record<string, unknown>>): Record<string, ExtensionValue> {
  return Object.fromEntries(
    Object.entries(headers).filter(
      (entry): entry is [string, ExtensionValue] => extensionName.test(entry[0]) && isScalar(entry[1]),
    ),
  );
}

/** Separates attributes from application headers. */
function sorted(all: Readonly<Record<string, unknown>>, unprefixed: boolean) {
  const attributes: Record<string, ExtensionValue> = {};
  const own: [string, string][] = [];
  for (const name of Object.keys(all)) {
    const value = all[name];
    if (!isScalar(value)) continue;
    if (name.startsWith(prefix) || name.startsWith(otherPrefix)) {
      attributes[name.slice(prefix.length).toLowerCase()] = value;
    } else if (name.startsWith(hiddenHeader)) own.push([name.slice(hiddenHeader.length), String(value)]);
    else if (!control.test(name) && !(unprefixed && extensionName.test(name)) && headerName.test(name)) {
      own.push([name, String(value)]);
    }
  }
  // Not by assignment, which does something else for names such as `__proto__`.
  return { attributes, headers: Object.fromEntries(own) };
}

function isScalar(value: unknown): value is ExtensionValue {
  return typeof value === "string" || typeof value === "boolean" || typeof value === "number";
}

function textOf(value: unknown): string | undefined {
  return value === undefined || value === null ? undefined : String(value);
}
