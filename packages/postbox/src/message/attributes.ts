import { PostboxError } from "../errors.js";
import type { Message } from "./message.js";
import { reservedHeaders } from "./reserved-headers.js";

const contextAttributes = new Set([
  "specversion",
  "id",
  "source",
  "type",
  "subject",
  "time",
  "datacontenttype",
  "dataschema",
  "data",
  "data_base64",
]);

/**
 * Legal names of extensions, which other producers may use. In our own messages they are more likely fields in the
 * wrong place.
 */
const fieldsBesideTheEvent = new Set(["topic", "key", "headers"]);

const reservedHeader = new RegExp(reservedHeaders, "i");
const headerName = /^[A-Za-z0-9._-]{1,128}$/;
const extensionName = /^[a-z0-9]{1,20}$/;
const foreignExtensionName = /^[a-z0-9]{1,255}$/;
const mediaType = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+(\s*;.*)?$/;
const rfc3339 = /^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/;
// CloudEvents strings exclude control characters; CR and LF would also inject protocol lines in some brokers.
// biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the point.
const controlCharacter = /[\u0000-\u001f\u007f-\u009f\ufdd0-\ufdef\ufffe\uffff]/;
const loneSurrogate = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;

const isoLength = "2026-01-31T12:00:00.000Z".length;
/** Nearly all texts match this, and need no other check of their characters. */
const printableAscii = /^[ -~]+$/;

/** In bytes of UTF-8. Well below the limits of brokers and indexes: an AMQP short string holds 255 bytes. */
export const attributeBytes = {
  id: 255,
  type: 255,
  topic: 255,
  source: 1024,
  subject: 1024,
  key: 1024,
  scheduleKey: 1024,
  dataschema: 1024,
  header: 8192,
};

/** RFC 3339 text of a time given as a Date or as such text. */
export function normaliseTime(time: Date | string, path = "time"): string {
  if (!(time instanceof Date)) {
    checkTime(path, time);
    return time;
  }
  if (Number.isNaN(time.getTime())) throw invalid(path, "is an invalid Date", "give a valid one");
  const text = time.toISOString();
  // Other years have a sign and six digits.
  if (text.length !== isoLength) throw invalid(path, `is ${text}`, "give a moment of the years 0 to 9999");
  return text;
}

/**
 * A due time as text that every database can read, in UTC: databases refuse the year 0, offsets of a day and long
 * fractions. A part of a millisecond is rounded up, since the message must not be sent before it is due.
 */
export function normaliseDueTime(time: Date | string): string {
  const given = normaliseTime(time, "deliverAt");
  const isFiner = /\.\d{3}\d*[1-9]/.test(given);
  const text = new Date(Date.parse(given) + (isFiner ? 1 : 0)).toISOString();
  if (text.length === isoLength && !text.startsWith("0000")) return text;
  throw invalid("deliverAt", `is ${text}`, "give a moment of the years 1 to 9999");
}

/** Throws unless every store and transport can carry this message as it is. The error names the message's type. */
export function checkMessage(message: Message, maxMessageBytes: number, foreign: boolean): void {
  checkText("type", message.type, attributeBytes.type);
  try {
    checkOthers(message, foreign);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    const { path, why, advice } = error;
    throw new PostboxError("message-invalid", `${message.type}: ${path} ${why}; ${advice}`, { path });
  }
  checkSize(message, maxMessageBytes);
}

function checkOthers(message: Message, foreign: boolean): void {
  checkText("id", message.id, attributeBytes.id);
  checkText("source", message.source, attributeBytes.source);
  checkText("topic", message.topic, attributeBytes.topic);
  if (message.subject !== undefined) checkText("subject", message.subject, attributeBytes.subject);
  if (message.key !== undefined) checkText("key", message.key, attributeBytes.key);
  if (message.scheduleKey !== undefined) checkScheduleKey(message.scheduleKey, message.deliverAt);
  if (message.dataschema !== undefined) checkText("dataschema", message.dataschema, attributeBytes.dataschema);
  checkText("datacontenttype", message.datacontenttype, attributeBytes.type);
  if (!mediaType.test(message.datacontenttype)) {
    throw invalid(
      "datacontenttype",
      `'${message.datacontenttype}' is no media type`,
      "write one such as application/json",
    );
  }
  for (const [name, value] of Object.entries(message.extensions)) checkExtension(name, value, foreign);
  for (const [name, value] of Object.entries(message.headers)) checkHeader(name, value);
  if (!(message.data instanceof Uint8Array)) throw invalid("data", "is not bytes", "give a Uint8Array");
}

function checkSize(message: Message, maxMessageBytes: number): void {
  const size = messageBytes(message);
  if (size > maxMessageBytes) {
    throw new PostboxError(
      "message-too-large",
      `message ${message.id} of type ${message.type} has ${size} bytes, ${maxMessageBytes} are allowed; ` +
        "store the data elsewhere and send a reference, or raise maxMessageBytes where the broker takes more",
      { path: "data" },
    );
  }
}

/** The bytes of attributes, headers and data together, which `maxMessageBytes` limits. */
export function messageBytes(message: Message): number {
  let size = message.data.byteLength;
  for (const value of [message.id, message.source, message.type, message.topic, message.datacontenttype]) {
    size += Buffer.byteLength(value);
  }
  for (const value of [message.subject, message.key, message.time, message.dataschema]) {
    if (value !== undefined) size += Buffer.byteLength(value);
  }
  for (const pairs of [message.extensions, message.headers]) {
    for (const name in pairs) size += name.length + Buffer.byteLength(String(pairs[name]));
  }
  return size;
}

function checkExtension(name: string, value: unknown, foreign: boolean): void {
  const path = `extensions.${name}`;
  if (contextAttributes.has(name) || (!foreign && fieldsBesideTheEvent.has(name))) {
    throw invalid(path, "is a name of the envelope itself", "choose another name");
  }
  if (!(foreign ? foreignExtensionName : extensionName).test(name)) {
    throw invalid(path, "is no extension name", "use 1 to 20 lower-case letters and digits, or put it into headers");
  }
  if (typeof value === "boolean") return;
  if (typeof value === "number") {
    if (Number.isInteger(value) && value >= -0x80000000 && value <= 0x7fffffff) return;
    throw invalid(path, `is ${value}`, "a number must be whole and fit into 32 bits; write others as text");
  }
  if (typeof value !== "string") throw invalid(path, "is not a scalar", "give text, a whole number or a flag");
  if (foreign && value === "") return;
  checkText(path, value, attributeBytes.header);
  if (name === "expirytime") checkTime(path, value);
}

function checkScheduleKey(scheduleKey: string, deliverAt: string | undefined): void {
  checkText("scheduleKey", scheduleKey, attributeBytes.scheduleKey);
  if (deliverAt !== undefined) return;
  throw invalid("scheduleKey", "is given without deliverAt", "give deliverAt, or leave scheduleKey out");
}

function checkHeader(name: string, value: unknown): void {
  const path = `headers.${name}`;
  if (!headerName.test(name)) throw invalid(path, "is no header name", "use up to 128 letters, digits and . _ -");
  if (reservedHeader.test(name)) throw invalid(path, "is a name that brokers use themselves", "choose another name");
  if (typeof value !== "string") throw invalid(path, "is not text", "give a string");
  if (value !== "") checkText(path, value, attributeBytes.header);
}

function checkTime(path: string, value: string): void {
  if (typeof value === "string" && rfc3339.test(value) && !Number.isNaN(Date.parse(value))) return;
  const text = "RFC 3339 text such as 2026-01-31T12:00:00Z";
  throw invalid(
    path,
    `is ${JSON.stringify(value)}`,
    path.startsWith("extensions.") ? `give ${text}` : `give a Date, or ${text}`,
  );
}

function checkText(path: string, value: unknown, maxBytes: number): void {
  if (value === undefined || value === "") throw invalid(path, "is missing or empty", "give a non-empty string");
  if (typeof value !== "string") throw invalid(path, `is of type ${typeof value}`, "give a string");
  if (printableAscii.test(value)) {
    if (value.length > maxBytes) throw tooLong(path, value.length, maxBytes);
    return;
  }
  if (controlCharacter.test(value)) throw invalid(path, "has a control character", "remove it");
  if (loneSurrogate.test(value)) throw invalid(path, "has half of a surrogate pair", "give well-formed Unicode");
  const bytes = Buffer.byteLength(value);
  if (bytes > maxBytes) throw tooLong(path, bytes, maxBytes);
}

function tooLong(path: string, bytes: number, maxBytes: number): Fault {
  return invalid(path, `has ${bytes} bytes`, `${maxBytes} are allowed`);
}

function invalid(path: string, why: string, advice: string): Fault {
  return new Fault(path, why, advice);
}

/** A fault of one attribute. */
class Fault extends PostboxError {
  readonly why: string;
  readonly advice: string;

  constructor(
    override readonly path: string,
    why: string,
    advice: string,
  ) {
    super("message-invalid", `${path} ${why}; ${advice}`, { path });
    this.why = why;
    this.advice = advice;
  }
}
