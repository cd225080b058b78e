import { ConfigError, PostboxError } from "../errors.js";
import type { Extensions } from "../message/message.js";
import { topicOfType } from "../message/topic.js";
import { callback, checkOptions, text } from "../options.js";
import {
  describeIssues,
  issuePath,
  type SchemaInput,
  type SchemaOutput,
  type StandardResult,
  type StandardSchema,
  type SurvivesTheWire,
} from "./standard-schema.js";

/** What a single message may set beside its data. */
export interface MessageOptions {
  /**
   * Defaults to a new UUIDv7. A consumer's inbox handles an id once, whoever sent it: one of your own must be unique
   * among all sources, and published twice it is sent twice, but handled once.
   */
  readonly id?: string;
  /** Defaults to what the event's `key` returns. */
  readonly key?: string;
  readonly subject?: string;
  /** Defaults to now. */
  readonly time?: Date | string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly extensions?: Extensions;
  /** Defaults to the event's. */
  readonly contentType?: string;
  /**
   * Not to be sent before this moment, by the database's clock. Only an outbox can wait. Until then it holds up nothing
   * of its key, and it takes its place in their order only then. Defaults to at once.
   */
  readonly deliverAt?: Date | string;
}

/** Those of a message that sets nothing. */
export const noOptions: MessageOptions = Object.freeze({});

/** A message without source and id: the publisher or outbox that takes it completes it. */
export interface Draft<Type extends string = string> {
  readonly type: Type;
  readonly event: EventDefinition<Type>;
  readonly data: unknown;
  readonly options: MessageOptions;
}

/** A kind of message, defined once: its name on the wire, the shape of its data, and where it goes. */
export interface EventDefinition<Type extends string = string, In = unknown, Out = unknown> {
  readonly type: Type;
  readonly topic: string;
  readonly version: string | undefined;
  readonly contentType: string;
  readonly dataschema: string | undefined;
  /** A draft of this event, to be returned from a handler or given to `publishAll`. */
  message(data: In, options?: MessageOptions): Draft<Type>;
  /** What the schema makes of `data`. Throws `data-invalid` with the path; never changes `data`. */
  validate(data: unknown): Promise<Out>;
  /** The same, without a promise where the schema needs none. */
  readonly "~validate": (data: unknown) => Out | Promise<Out>;
  /** The key of already validated data, or undefined where this event has none. */
  keyOf(data: Out): string | undefined;
  /** Carries the types only. */
  readonly "~types"?: { readonly in: In; readonly out: Out };
}

export type DataIn<E> = E extends EventDefinition<string, infer In, unknown> ? In : never;
export type DataOut<E> = E extends EventDefinition<string, unknown, infer Out> ? Out : never;

export interface EventOptions<Type extends string, S extends StandardSchema> {
  /** The name on the wire, for example `shop.orders.v1.OrderPlaced`. */
  readonly type: Type;
  /** Any Standard Schema (Zod, Valibot, ArkType …) whose output survives the wire. */
  readonly schema: SurvivesTheWire<S>;
  /** Messages with the same key keep their order. Defaults to none. */
  readonly key?: (data: SchemaOutput<S>) => string;
  /** Defaults to the type before its last dot. */
  readonly topic?: string;
  /** Travels as `dataversion`. Defaults to none. */
  readonly version?: string;
  /** Defaults to `application/json`. */
  readonly contentType?: string;
  /** A URI that describes the data. Defaults to none. */
  readonly dataschema?: string;
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
  dataschema: text,
};

/**
 * Defines an event. What is published is what the schema *returned* (defaults filled in, unknown keys gone), and the
 * handler's side validates again: a schema whose output is not valid input after JSON does not compile, and where nobody
 * compiles, publishing a message that shows it throws `event-invalid`.
 */
export function defineEvent<const Type extends string, S extends StandardSchema>(
  options: EventOptions<Type, S>,
): EventDefinition<Type, SchemaInput<S>, SchemaOutput<S>> {
  checkOptions("defineEvent", options, rules);
  const { type, key, topic, version, contentType = "application/json", dataschema } = options;
  const schema = options.schema as StandardSchema<SchemaInput<S>, SchemaOutput<S>>;
  if (type === undefined) {
    throw new ConfigError("event-invalid", "defineEvent: 'type' is missing; give the event's name on the wire");
  }
  if (typeof schema?.["~standard"]?.validate !== "function") {
    throw new ConfigError(
      "event-invalid",
      `defineEvent: the schema of ${type} is no Standard Schema; use Zod, Valibot, ArkType, or wrap yours in '~standard'`,
    );
  }
  const returned = (result: StandardResult<SchemaOutput<S>>): SchemaOutput<S> => {
    if (result.issues === undefined) return result.value;
    throw new PostboxError("data-invalid", `${type}: ${describeIssues(result.issues)}; the schema refuses this data`, {
      path: issuePath(result.issues[0]),
    });
  };
  const event: EventDefinition<Type, SchemaInput<S>, SchemaOutput<S>> = {
    type,
    topic: topic ?? topicOfType(type),
    version,
    contentType,
    dataschema,
    message: (data, messageOptions = noOptions) => ({ type, event, data, options: messageOptions }),
    validate: async (data) => event["~validate"](data),
    "~validate"(data) {
      const result = schema["~standard"].validate(data);
      return result instanceof Promise ? result.then(returned) : returned(result);
    },
    keyOf: (data) => key?.(data),
  };
  return Object.freeze(event);
}
