import { checkMessage, normaliseTime } from "./attributes.js";
import { topicOfType } from "./topic.js";

/** What a CloudEvents extension may hold: text, a 32-bit whole number, or a flag. */
export type ExtensionValue = string | number | boolean;

/**
 * CloudEvents extension attributes. Names are lower-case letters and digits, at most 20.
 * `partitionkey` is not among them: it is how a message's `key` is spelt on the wire.
 */
export interface Extensions {
  /** The same for everything that follows from one request. */
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
 * One message: a CloudEvents 1.0 envelope, where it goes, and its data as bytes, exactly as they travel.
 * Immutable. `id` never changes through retries, relays and replays.
 */
export interface Message {
  readonly specversion: "1.0";
  readonly id: string;
  readonly source: string;
  readonly type: string;
  readonly subject?: string;
  /** RFC 3339, kept as text so that a foreign producer's precision survives. Ours always have one. */
  readonly time?: string;
  readonly datacontenttype: string;
  readonly dataschema?: string;
  readonly extensions: Extensions;
  /** Free-form text beside the event, for what is no legal extension name (`idempotency_key`, `x-source`). */
  readonly headers: Readonly<Record<string, string>>;
  /** Where the message goes. */
  readonly topic: string;
  /** Messages with the same key keep their order. Without a key there is no order to keep. */
  readonly key?: string;
  /** Empty when the event has no data. */
  readonly data: Uint8Array;
}

/** What `createMessage` makes a message of. */
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
  readonly data?: Uint8Array | undefined;
}

export interface MessageLimits {
  /** Attributes, headers and data together. Defaults to 1 MiB, which every broker takes as it is installed. */
  readonly maxMessageBytes?: number;
  /**
   * Made by somebody else: what CloudEvents allows in extensions is accepted, also what ours may not have (long names,
   * names of fields beside the event, empty values).
   */
  readonly foreign?: boolean;
}

const defaultMaxMessageBytes = 1024 * 1024;

/**
 * Makes a message, or throws `message-invalid` or `message-too-large` with the path of the fault:
 * what this returns, every store and transport can carry.
 */
export function createMessage(input: MessageInput, limits: MessageLimits = {}): Message {
  const { partitionkey, ...extensions } = input.extensions ?? {};
  const message: Message = {
    specversion: "1.0",
    id: input.id,
    source: input.source,
    type: input.type,
    ...(input.subject === undefined ? {} : { subject: input.subject }),
    ...(input.time === undefined ? {} : { time: normaliseTime(input.time) }),
    datacontenttype: input.datacontenttype ?? "application/json",
    ...(input.dataschema === undefined ? {} : { dataschema: input.dataschema }),
    extensions: Object.freeze(withoutUndefined(extensions)),
    headers: Object.freeze({ ...input.headers }),
    topic: input.topic ?? topicOfType(input.type),
    ...keyOf(input.key, partitionkey),
    data: input.data ?? new Uint8Array(0),
  };
  checkMessage(message, limits.maxMessageBytes ?? defaultMaxMessageBytes, limits.foreign ?? false);
  return Object.freeze(message);
}

function keyOf(key: string | undefined, partitionkey: ExtensionValue | undefined): { key?: string } {
  const chosen = key ?? (partitionkey === undefined ? undefined : String(partitionkey));
  return chosen === undefined ? {} : { key: chosen };
}

function withoutUndefined(extensions: Extensions): Extensions {
  return Object.fromEntries(Object.entries(extensions).filter(([, value]) => value !== undefined));
}
