import { ConfigError, PostboxError } from "../errors.js";
import { answered } from "../internal/answer.js";
import { reasonOf } from "../internal/reason-of.js";
import { type Codec, codecList } from "../message/codec.js";
import type { Extensions } from "../message/message.js";
import { topicOfType } from "../message/topic.js";
import { callback, checkOptions, list, object, text } from "../options.js";
import {
  type CarriedBy,
  describeIssues,
  issuePath,
  type JsonSchemaSource,
  type SchemaInput,
  type SchemaOutput,
  type StandardResult,
  type StandardSchema,
} from "./standard-schema.js";
import { type OlderType, olderTypes, type Upcaster } from "./upcast.js";

/** What a single message may set in addition to its data. */
export type MessageOptions = MessageAttributes & Delivery;

/** When a message is sent. A schedule key without `deliverAt` does not compile. */
type Delivery =
  | {
      /**
       * The message is not sent before this moment, by the database's clock. Only an outbox can wait. Until then it
       * delays no other message of its key; it takes its place in their order only then. Defaults to at once.
       */
      readonly deliverAt?: Date | string;
      readonly scheduleKey?: never;
    }
  | {
      readonly deliverAt: Date | string;
      /**
       * Identifies what is scheduled: a later message of the same event and schedule key replaces this one, and
       * `outbox.in(tx).cancel(event, scheduleKey)` removes it, until a relay has appended it to the outbox. A relay
       * always appends such a message, even if `deliverAt` has passed. Defaults to none: nothing replaces it.
       */
      readonly scheduleKey?: string;
    };

interface MessageAttributes {
  /**
   * Defaults to a new UUIDv7. A consumer's inbox handles an id once, whoever sent it. An id of your own must therefore
   * be unique among all sources; if it is published twice, it is sent twice and handled once.
   */
  readonly id?: string;
  /** Defaults to what the event's `key` returns. */
  readonly key?: string;
  readonly subject?: string;
  /** Defaults to now. */
  readonly time?: Date | string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly extensions?: Extensions;
  /** Defaults to the event's content type. */
  readonly contentType?: string;
}

/** The options of a message that sets none. */
export const noOptions: MessageOptions = Object.freeze({});

/** A message without source and id, which the publisher or outbox adds. */
export interface Draft<Type extends string = string> {
  readonly type: Type;
  readonly event: EventDefinition<Type>;
  readonly data: unknown;
  readonly options: MessageOptions;
}

/** The id of a published message. */
export interface Published {
  readonly id: string;
}

/** A kind of message, defined once: its type on the wire, the schema of its data, and its topic. */
export interface EventDefinition<
  Type extends string = string,
  In = unknown,
  Out = unknown,
  Older extends string = never,
> {
  readonly type: Type;
  readonly topic: string;
  readonly version: string | undefined;
  readonly contentType: string;
  /** Its own codecs, which publishers and routers prefer to theirs. */
  readonly codecs: readonly Codec[];
  readonly dataschema: string | undefined;
  /** The older types that its handler takes too. They are never published. */
  readonly upcasts: readonly OlderType<Out>[];
  readonly schema: StandardSchema;
  /** Replaces the schema's own JSON Schema in documents. */
  readonly jsonSchema: JsonSchemaSource | undefined;
  readonly docs: EventDocs;
  /** A draft of this event, to return from a handler or to pass to `publishAll`. */
  message(data: In, options?: MessageOptions): Draft<Type>;
  /** The result of the schema for `data`. Throws `data-invalid` with the path; never changes `data`. */
  validate(data: unknown): Promise<Out>;
  /** The same, without a promise if the schema is synchronous. */
  readonly "~validate": (data: unknown) => Out | Promise<Out>;
  /** The key of validated data, or undefined if this event has none. Throws `message-invalid` if the key is empty. */
  keyOf(data: Out): string | undefined;
  /** Carries the types only. */
  readonly "~types"?: { readonly in: In; readonly out: Out; readonly older: (type: Older) => void };
}

/** What a publisher passes for an event: the input of its schema. */
export type DataIn<E> = E extends EventDefinition<string, infer In, unknown> ? In : never;
/** What a handler receives for an event: the output of its schema. */
export type DataOut<E> = E extends EventDefinition<string, unknown, infer Out> ? Out : never;
/** The older types that an event takes in addition to its own. */
export type OlderTypesOf<E extends EventDefinition> = Parameters<NonNullable<E["~types"]>["older"]>[0];
/** All types that the handler of an event takes. */
export type TypesOf<E extends EventDefinition> = E["type"] | OlderTypesOf<E>;

/** What documents say of an event in addition to its schema; copied as it is. */
export interface EventDocs {
  readonly title?: string;
  readonly summary?: string;
  /** CommonMark. */
  readonly description?: string;
  readonly [extension: `x-${string}`]: unknown;
}

/** Options of `defineEvent`. */
export interface EventOptions<
  Type extends string,
  S extends StandardSchema,
  Carried = never,
  Older extends string = never,
> {
  /** The name on the wire, for example `shop.orders.v1.OrderPlaced`. */
  readonly type: Type;
  /** Any Standard Schema (Zod, Valibot, ArkType …) whose output survives the wire. */
  readonly schema: CarriedBy<Carried, S>;
  /** Messages with the same key keep their order; messages without a key have no order. Defaults to none. */
  readonly key?: (data: SchemaOutput<S>) => string | undefined;
  /** Defaults to the type before its last dot. */
  readonly topic?: string;
  /** Published as the extension `dataversion`. Defaults to none. */
  readonly version?: string;
  /** Defaults to that of the first of `codecs`, or to `application/json`. */
  readonly contentType?: string;
  /**
   * The encodings of this event's data, preferred to the codecs of publishers and routers. They, instead of JSON, must
   * be able to carry what the schema returns. Defaults to none.
   */
  readonly codecs?: readonly Codec<Carried>[];
  /** A URI that describes the data. Defaults to none. */
  readonly dataschema?: string;
  /**
   * Conversions from older types, made by `upcastFrom`: the handler of this event takes those types too. Their data is
   * decoded, upcast, and validated as data of this event; `context.message` stays what arrived. Defaults to none.
   */
  readonly upcast?: readonly Upcaster<Older, SchemaInput<S>>[];
  /** The JSON Schema for a catalog's documents, if the schema cannot provide one. Defaults to the schema's own. */
  readonly jsonSchema?: JsonSchemaSource;
  /** More for a catalog's documents. Defaults to nothing. */
  readonly docs?: EventDocs;
}

const rules = {
  type: text,
  schema: {
    expected: "a Standard Schema",
    test: (value: unknown) => typeof value === "object" || typeof value === "function",
  },
  key: callback,
  topic: text,
  version: text,
  contentType: text,
  codecs: codecList,
  dataschema: text,
  upcast: { ...list, expected: "an array of what upcastFrom returns" },
  jsonSchema: {
    expected: "a JSON Schema, or a function that returns one",
    test: (value: unknown) => typeof value === "function" || object.test(value),
  },
  docs: {
    expected: "an object of title, summary, description and names that begin with x-",
    test: (value: unknown) =>
      object.test(value) &&
      Object.keys(value as object).every((key) => /^(title|summary|description|x-[\w.-]+)$/.test(key)),
  },
};

/**
 * Defines an event. A publisher sends what the schema *returned* (with defaults filled in and unknown keys removed),
 * and the handler's side validates it again. A schema whose output is not valid input after JSON, or after the event's
 * own codecs, does not compile; untyped callers get `event-invalid` when they publish a message that shows it.
 *
 * @example
 * ```ts
 * const OrderPaid = defineEvent({
 *   type: "shop.orders.v1.OrderPaid",
 *   schema: z.object({ orderId: z.string(), amount: z.number() }),
 *   key: (order) => order.orderId,
 * });
 * ```
 */
export function defineEvent<
  const Type extends string,
  S extends StandardSchema,
  Carried = never,
  const Older extends string = never,
>(options: EventOptions<Type, S, Carried, Older>): EventDefinition<Type, SchemaInput<S>, SchemaOutput<S>, Older> {
  checkOptions("defineEvent", options, rules);
  const { type, key, topic, version, dataschema } = options;
  // A copy, since publishers and routers cache by its identity.
  const codecs = Object.freeze([...(options.codecs ?? [])]) as readonly Codec[];
  const contentType = options.contentType ?? codecs[0]?.contentType ?? "application/json";
  const schema = options.schema as unknown as StandardSchema<SchemaInput<S>, SchemaOutput<S>>;
  if (type === undefined) {
    throw new ConfigError("event-invalid", "defineEvent: 'type' is missing; give the event's name on the wire");
  }
  if (typeof schema?.["~standard"]?.validate !== "function") {
    throw new ConfigError(
      "event-invalid",
      `defineEvent: the schema of ${type} is no Standard Schema; use Zod, Valibot, ArkType, or wrap yours in ` +
        "'~standard'",
    );
  }
  const returned = (result: StandardResult<SchemaOutput<S>>): SchemaOutput<S> => {
    if (result.issues === undefined) return result.value;
    throw new PostboxError("data-invalid", `${type}: ${describeIssues(result.issues)}; the schema refuses this data`, {
      path: issuePath(result.issues[0]),
    });
  };
  const validate = async (data: unknown) => event["~validate"](data);
  const event: EventDefinition<Type, SchemaInput<S>, SchemaOutput<S>, Older> = {
    type,
    topic: topic ?? topicOfType(type),
    version,
    contentType,
    codecs,
    dataschema,
    upcasts: olderTypes(type, options.upcast ?? [], validate),
    schema,
    jsonSchema: options.jsonSchema,
    docs: Object.freeze({ ...options.docs }),
    message: (data, messageOptions = noOptions) => ({ type, event, data, options: messageOptions }),
    validate,
    "~validate"(data) {
      const result = schema["~standard"].validate(data);
      return result instanceof Promise ? result.then(returned) : returned(result);
    },
    keyOf(data) {
      let found: string | undefined;
      try {
        found = answered(key?.(data));
      } catch (cause) {
        const text =
          `${type}: its 'key' threw: ${reasonOf(cause)}; let it return a text, or undefined, for all data that is ` +
          "valid";
        throw new PostboxError("message-invalid", text, { path: "key", cause });
      }
      if (found !== "") return found;
      throw new PostboxError(
        "message-invalid",
        `${type}: its key is empty; where it has none, 'key' returns undefined`,
        {
          path: "key",
        },
      );
    },
  };
  return Object.freeze(event);
}
