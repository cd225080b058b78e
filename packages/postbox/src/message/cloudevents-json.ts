import { PermanentError } from "../errors.js";
import { isJson } from "./codec.js";
import { elementsOf, hasMoreMembersThan, membersOf } from "./json-slices.js";
import { createMessage, type Extensions, type ExtensionValue, type Message } from "./message.js";

/** What the JSON form has no place for: it is carried beside the event, in the transport's own headers. */
export interface BesideTheEvent {
  /** Defaults to the type before its last dot. */
  readonly topic?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** As for `createMessage`. */
  readonly maxMessageBytes?: number;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * `application/cloudevents+json`. JSON data is embedded byte for byte, never parsed and written again.
 *
 * @example
 * ```ts
 * const body = toCloudEventJson(message);
 * ```
 */
export function toCloudEventJson(message: Message): string {
  const { specversion, id, source, type, subject, time, datacontenttype, dataschema, extensions, key } = message;
  const attributes = { ...extensions, specversion, id, source, type, subject, time, datacontenttype, dataschema };
  const head = JSON.stringify(key === undefined ? attributes : { ...attributes, partitionkey: key });
  if (message.data.byteLength === 0) return head;
  return `${head.slice(0, -1)},${dataMember(message)}}`;
}

/**
 * `application/cloudevents-batch+json`.
 *
 * @example
 * ```ts
 * const body = toCloudEventBatchJson([message]);
 * ```
 */
export function toCloudEventBatchJson(messages: readonly Message[]): string {
  return `[${messages.map(toCloudEventJson).join(",")}]`;
}

/**
 * Reads one structured event. Throws a `PermanentError` if it is no CloudEvents 1.0 JSON.
 *
 * @example
 * ```ts
 * const message = fromCloudEventJson(await request.text());
 * ```
 */
export function fromCloudEventJson(text: string, beside: BesideTheEvent = {}): Message {
  checkMembers(text);
  return readEvent(text, parse(text), beside);
}

/**
 * Reads a batch. One invalid event fails the whole call: a batch is one unit on the wire.
 *
 * @example
 * ```ts
 * const messages = fromCloudEventBatchJson(await request.text());
 * ```
 */
export function fromCloudEventBatchJson(text: string, beside: BesideTheEvent = {}): Message[] {
  const events = parse(text);
  if (!Array.isArray(events)) throw notCloudEvent("a batch is a JSON array");
  return elementsOf(text).map((element, index) => {
    checkMembers(element);
    return readEvent(element, events[index], beside);
  });
}

function dataMember(message: Message): string {
  if (isJson(message.datacontenttype)) {
    const text = utf8(message.data);
    // Bytes that only claim to be JSON must not break the envelope around them. White space around a value would be
    // lost. Both are written as base64 instead.
    if (text !== undefined && isJsonText(text) && !/^\s|\s$/.test(text)) return `"data":${text}`;
  }
  return `"data_base64":"${Buffer.from(message.data).toString("base64")}"`;
}

/** An object with a million members takes the engine seconds to parse, and longer to copy. */
function checkMembers(text: string): void {
  if (hasMoreMembersThan(text, mostMembers)) throw notCloudEvent(`it has more than ${mostMembers} members`);
}

/** The limit counts attributes, extensions and data. No broker carries that many headers. */
const mostMembers = 1000;

function readEvent(text: string, event: unknown, beside: BesideTheEvent): Message {
  if (typeof event !== "object" || event === null || Array.isArray(event))
    throw notCloudEvent("an event is a JSON object");
  const { specversion, id, source, type, subject, time, datacontenttype, dataschema, data, data_base64, ...rest } =
    event as Record<string, unknown>;
  if (specversion !== "1.0") throw notCloudEvent(`specversion is ${JSON.stringify(specversion)}, not "1.0"`);
  const contentType = (datacontenttype ?? "application/json") as string;
  try {
    return createMessage(
      {
        id: id as string,
        source: source as string,
        type: type as string,
        subject: (subject ?? undefined) as string | undefined,
        time: (time ?? undefined) as string | undefined,
        datacontenttype: contentType,
        dataschema: (dataschema ?? undefined) as string | undefined,
        extensions: withoutNulls(rest),
        headers: beside.headers,
        topic: beside.topic,
        data: dataBytes(text, data, data_base64, contentType),
      },
      { ...beside, foreign: true },
    );
  } catch (cause) {
    throw notCloudEvent(cause instanceof Error ? cause.message : String(cause), cause);
  }
}

function dataBytes(text: string, data: unknown, base64: unknown, contentType: string): Uint8Array | undefined {
  if (base64 !== undefined && base64 !== null) {
    const bytes = Buffer.from(String(base64), "base64");
    // Buffer skips invalid characters, so only valid base64 encodes to the same text again.
    if (bytes.toString("base64") !== base64) throw notCloudEvent("data_base64 is not base64");
    return bytes;
  }
  if (data === undefined) return undefined;
  if (typeof data === "string" && !isJson(contentType)) return Buffer.from(data, "utf8");
  // The member's own text, so that 1.0, large numbers and the order of keys stay as they are.
  return Buffer.from(membersOf(text).get("data") as string, "utf8");
}

function withoutNulls(rest: Record<string, unknown>): Extensions {
  const pairs = Object.entries(rest).filter(([, value]) => value !== null) as [string, ExtensionValue][];
  return Object.fromEntries(pairs);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw notCloudEvent("it is not JSON", cause);
  }
}

function isJsonText(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function utf8(bytes: Uint8Array): string | undefined {
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
}

function notCloudEvent(why: string, cause?: unknown): PermanentError {
  return new PermanentError(`not a CloudEvents 1.0 JSON event: ${why}`, { code: "message-invalid", cause });
}
