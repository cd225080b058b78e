import { checkMessage, normaliseDueTime, normaliseTime } from "./attributes.js";
import { topicOfType } from "./topic.js";

/** What a CloudEvents extension may hold: text, a 32-bit whole number, or a flag. */
export type ExtensionValue = string | number | boolean;

/**
 * CloudEvents extension attributes. Names are lower-case letters and digits, at most 20. `partitionkey` is not among
 * them: it carries a message's `key` on the wire.
 */
export interface Extensions {
  /** The same for all messages that one request leads to. */
  readonly correlationid?: string;
  /** The id of the message whose handling led to this one. */
  readonly causationid?: string;
  /** After this moment the message is worthless; RFC 3339. */
  readonly expirytime?: string;
  /** The version of the data's shape. */
  readonly dataversion?: string;
  /** W3C trace context. */
  readonly traceparent?: string;
  readonly tracestate?: string;
  readonly [name: string]: ExtensionValue | undefined;
}

/**
 * One message: a CloudEvents 1.0 envelope, its topic, and its data as bytes, exactly as sent. Immutable. Its `id` never
 * changes through retries, relays and replays.
 */
export interface Message {
  readonly specversion: "1.0";
  readonly id: string;
  readonly source: string;
  readonly type: string;
  readonly subject?: string;
  /** RFC 3339, kept as text to preserve another producer's precision. Our own messages always have a time. */
  readonly time?: string;
  readonly datacontenttype: string;
  readonly dataschema?: string;
  readonly extensions: Extensions;
  /** Text beside the event, for names that are no legal extension names (`idempotency_key`, `x-source`). */
  readonly headers: Readonly<Record<string, string>>;
  /** Where the message is sent. */
  readonly topic: string;
  /** Messages with the same key keep their order. Messages without a key have no order. */
  readonly key?: string;
  /** The message is not sent before this moment; RFC 3339. For the outbox only: a sender's messages have none. */
  readonly deliverAt?: string;
  /**
   * Until the message is due, a later one of the same type and schedule key replaces it. For the outbox only, like
   * `deliverAt`.
   */
  readonly scheduleKey?: string;
  /** Empty if the event has no data. */
  readonly data: Uint8Array;
}

/** The input of `createMessage`. */
export interface MessageInput {
  readonly type: string;
  readonly source: string;
  readonly id: string;
  readonly subject?: string | undefined;
  readonly time?: Date | string | undefined;
  /** Defaults to `application/json`. */
  readonly datacontenttype?: string | undefined;
  readonly dataschema?: string | undefined;
  readonly extensions?: Extensions | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Defaults to the type before its last dot. */
  readonly topic?: string | undefined;
  readonly key?: string | undefined;
  /**
   * Only an outbox can wait. Stored in UTC, rounded up to a whole millisecond, in the years 1 to 9999. Defaults
   * to at once.
   */
  readonly deliverAt?: Date | string | undefined;
  /** Only together with `deliverAt`. Defaults to none: nothing replaces it. */
  readonly scheduleKey?: string | undefined;
  readonly data?: Uint8Array | undefined;
}

/** The limits of `createMessage`. */
export interface MessageLimits {
  /** The limit of attributes, headers and data together. Defaults to 1 MiB, which every broker accepts by default. */
  readonly maxMessageBytes?: number;
  /**
   * Made by another producer: accepts extensions that CloudEvents allows and our own messages may not have (long names,
   * names of fields beside the event, empty values).
   */
  readonly foreign?: boolean;
}

const defaultMaxMessageBytes = 1024 * 1024;

/**
 * Makes a message, or throws `message-invalid` or `message-too-large` with the path of the fault. Every store and
 * transport can carry the result.
 *
 * @example
 * ```ts
 * const message = createMessage({ id: "1", source: "/orders", type: "shop.orders.v1.OrderPlaced" });
 * ```
 */
export function createMessage(input: MessageInput, limits: MessageLimits = {}): Message {
  const { subject, time, dataschema, deliverAt, scheduleKey } = input;
  const key = input.key ?? partitionKey(input.extensions);
  const message: Mutable<Message> = {
    specversion: "1.0",
    id: input.id,
    source: input.source,
    type: input.type,
    datacontenttype: input.datacontenttype ?? "application/json",
    extensions: extensionsOf(input.extensions),
    headers: input.headers === undefined ? nothing : Object.freeze({ ...input.headers }),
    // `checkMessage` reports a missing type.
    topic: input.topic ?? topicOfType(String(input.type ?? "")),
    data: input.data ?? new Uint8Array(0),
  };
  if (subject !== undefined) message.subject = subject;
  if (time !== undefined) message.time = normaliseTime(time);
  if (dataschema !== undefined) message.dataschema = dataschema;
  if (key !== undefined) message.key = key;
  if (deliverAt !== undefined) message.deliverAt = normaliseDueTime(deliverAt);
  if (scheduleKey !== undefined) message.scheduleKey = scheduleKey;
  checkMessage(message, limits.maxMessageBytes ?? defaultMaxMessageBytes, limits.foreign ?? false);
  return Object.freeze(message);
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** Most messages have no headers and no extensions, and share this object. */
const nothing: Readonly<Record<string, never>> = Object.freeze({});

function partitionKey(extensions: Extensions | undefined): string | undefined {
  const value = extensions?.partitionkey;
  return value === undefined ? undefined : String(value);
}

function extensionsOf(given: Extensions | undefined): Extensions {
  if (given === undefined) return nothing;
  const entries = Object.entries(given).filter(([name, value]) => value !== undefined && name !== "partitionkey");
  return entries.length === 0 ? nothing : Object.freeze(Object.fromEntries(entries));
}
