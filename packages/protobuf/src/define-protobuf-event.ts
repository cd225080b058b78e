import { create, type DescMessage, isFieldSet, type MessageInitShape, type MessageShape } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import {
  ConfigError,
  defineEvent,
  type EventDefinition,
  type EventOptions,
  PostboxError,
  type StandardSchema,
  type Upcaster,
} from "postbox";
import { initializerIssues } from "./initializer-issues.js";
import { keyProblem } from "./key-field.js";
import { messageIssues } from "./message-issues.js";
import { protobufCodecs } from "./protobuf-codecs.js";

/** An event whose data is a protobuf message. Publishers take what `create` takes; handlers receive what it returns. */
export type ProtobufEvent<
  Type extends string,
  Desc extends DescMessage,
  Older extends string = never,
> = EventDefinition<Type, MessageInitShape<Desc>, MessageShape<Desc>, Older>;

/**
 * The fields that can be the key, as far as types can express it. Fractions and enums are numbers too; they are refused
 * when the event is defined.
 */
type KeyField<Shape> = {
  [K in Exclude<keyof Shape & string, "$typeName">]: Shape[K] extends string | number | bigint | undefined ? K : never;
}[Exclude<keyof Shape & string, "$typeName">];

/** Options of `defineProtobufEvent`. */
export interface ProtobufEventOptions<Type extends string, Desc extends DescMessage, Older extends string = never>
  extends Pick<EventOptions<Type, StandardSchema>, "topic" | "version" | "dataschema" | "jsonSchema" | "docs"> {
  /** The type name on the wire, for example `example.books.v1.BookCreated`. */
  readonly type: Type;
  /** The message descriptor from protoc-gen-es, such as `BookCreatedEventSchema`. */
  readonly message: Desc;
  /**
   * The field whose value is the key: a string or an integer. If the field is not set, the message has no key. With
   * implicit presence, unset and empty look the same, so a message whose key is empty is refused. Defaults to none.
   */
  readonly key?: KeyField<MessageShape<Desc>>;
  /** Like `upcast` of `defineEvent`. The older types may have protobuf or any other data. Defaults to none. */
  readonly upcast?: readonly Upcaster<Older, MessageInitShape<Desc>>[];
}

/** All option names. */
const known = {
  type: true,
  message: true,
  key: true,
  topic: true,
  version: true,
  dataschema: true,
  upcast: true,
  jsonSchema: true,
  docs: true,
} as const satisfies Record<keyof ProtobufEventOptions<string, DescMessage>, true>;

/**
 * Defines an event whose data is a protobuf message, as generated code does. The definition does not depend on the
 * publishers, outboxes and routers that use it. Its content type is `application/protobuf`. Set `application/json` on a
 * message to encode it with protobuf's JSON mapping; handlers read both.
 *
 * @example
 * ```ts
 * const Event = defineProtobufEvent({ type: "shop.v1.Raised", message: DurationSchema });
 * await outbox.in(tx).publish(Event, { seconds: 1n });
 * ```
 */
export function defineProtobufEvent<
  const Type extends string,
  Desc extends DescMessage,
  const Older extends string = never,
>(options: ProtobufEventOptions<Type, Desc, Older>): ProtobufEvent<Type, Desc, Older> {
  checkNames(options);
  const { type, message, key, docs, upcast = [], ...others } = options;
  if (message?.kind !== "message") {
    throw new ConfigError(
      "event-invalid",
      `defineProtobufEvent: 'message' of ${type} is not a message descriptor; pass what protoc-gen-es generates, ` +
        "such as BookCreatedEventSchema",
    );
  }
  return defineEvent({
    ...others,
    type,
    docs: { "x-protobuf-message": message.typeName, ...docs },
    // The codecs carry every message and the schema accepts what upcasters return. Types that are still generic cannot
    // express this.
    schema: schemaOf(message) as never,
    upcast: upcast as never,
    codecs: protobufCodecs(message),
    ...(key !== undefined && { key: keyReader(type, message, key) }),
  }) as unknown as ProtobufEvent<Type, Desc, Older>;
}

/** `defineEvent` would list options that do not exist here. */
function checkNames(options: unknown): void {
  if (typeof options !== "object" || options === null) {
    throw new ConfigError("option-invalid", `defineProtobufEvent: options must be an object; got ${options}`);
  }
  for (const name of Object.keys(options)) {
    if (Object.hasOwn(known, name)) continue;
    const names = Object.keys(known).join(", ");
    throw new ConfigError("option-unknown", `defineProtobufEvent: unknown option '${name}'; known are ${names}`, {
      path: name,
    });
  }
}

/** A Standard Schema that makes a message from an initializer and reports what the message cannot hold. */
function schemaOf<Desc extends DescMessage>(message: Desc): StandardSchema<MessageInitShape<Desc>, MessageShape<Desc>> {
  return {
    "~standard": {
      version: 1,
      vendor: "postbox-protobuf",
      validate(value) {
        const unfit = initializerIssues(message, value);
        if (unfit.length > 0) return { issues: unfit };
        const made = create(message, value as MessageInitShape<Desc>);
        const issues = messageIssues(message, made);
        return issues.length > 0 ? { issues } : { value: made };
      },
    },
  };
}

function keyReader(
  type: string,
  message: DescMessage,
  name: string,
): (data: MessageShape<DescMessage>) => string | undefined {
  const field = Object.hasOwn(message.field, name) ? message.field[name] : undefined;
  const problem = field === undefined ? "not one of its fields" : keyProblem(field);
  if (field === undefined || problem !== undefined) {
    throw new ConfigError(
      "event-invalid",
      `${type}: '${name}' cannot be the key of ${message.typeName}, since it is ${problem}; name a single string ` +
        "or integer",
    );
  }
  return (data) => {
    if (field.presence !== FeatureSet_FieldPresence.IMPLICIT && !isFieldSet(data, field)) return undefined;
    const key = String((data as unknown as Record<string, unknown>)[name]);
    if (key !== "") return key;
    throw new PostboxError(
      "message-invalid",
      `${type}: its key, the field ${field.name} of ${message.typeName}, is empty; set '${name}', or give the ` +
        "message a key of its own",
      { path: "key" },
    );
  };
}
