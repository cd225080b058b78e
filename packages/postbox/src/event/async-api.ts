import { ConfigError } from "../errors.js";
import { callback, checkOptions, list, nearestName, object, text } from "../options.js";
import type { EventDefinition } from "./define-event.js";
import { embedded, type JsonSchemaOptions, jsonSchemaOf, jsonSchemaRules } from "./json-schema.js";
import type { JsonSchema } from "./standard-schema.js";

/** A payload in another schema language, such as the text of a `.proto` file. */
export interface AsyncApiPayload {
  /** For example `application/vnd.google.protobuf;version=3`. */
  readonly schemaFormat: string;
  readonly schema: unknown;
}

export interface AsyncApiOptions<Type extends string = string> extends JsonSchemaOptions {
  /** AsyncAPI's `info`: title and version of the application, and any of its other fields. */
  readonly info: { readonly title: string; readonly version: string; readonly [more: string]: unknown };
  /** AsyncAPI's `servers`. Defaults to none. */
  readonly servers?: Readonly<Record<string, unknown>>;
  /** What this application publishes. Defaults to all events, or to none if `receives` is given. */
  readonly sends?: readonly Type[];
  /** What this application handles. Defaults to none. */
  readonly receives?: readonly Type[];
  /**
   * The prefix of CloudEvents attributes in the transport's headers: `ce_` on Kafka, `ce-` on HTTP. Defaults to
   * `cloudEvents:`, that of AMQP.
   */
  readonly attributePrefix?: string;
  /** Describes data that is not JSON; undefined leaves an event as it is. Defaults to no description. */
  readonly payload?: (event: EventDefinition) => AsyncApiPayload | undefined;
}

/** An AsyncAPI 3.0 document, as plain JSON. */
export interface AsyncApiDocument {
  readonly asyncapi: "3.0.0";
  readonly info: AsyncApiOptions["info"];
  readonly servers?: Readonly<Record<string, unknown>>;
  readonly channels: Readonly<Record<string, JsonSchema>>;
  readonly operations: Readonly<Record<string, JsonSchema>>;
  readonly components: Readonly<Record<"messages" | "messageTraits" | "schemas", Readonly<Record<string, JsonSchema>>>>;
}

const rules = {
  ...jsonSchemaRules,
  info: object,
  servers: object,
  sends: list,
  receives: list,
  attributePrefix: text,
  payload: callback,
};

/**
 * Describes events, sorted by type: a channel for each topic, and an operation for each channel that is sent to or
 * received from.
 */
export function asyncApi(events: readonly EventDefinition[], options: AsyncApiOptions): AsyncApiDocument {
  checkOptions("asyncApi", options, rules, ["info"]);
  const { info, servers, receives = [], sends = options.receives ? [] : events.map(({ type }) => type) } = options;
  const { title, version } = info;
  checkOptions("asyncApi: info", { title, version }, { title: text, version: text }, ["title", "version"]);
  for (const type of [...sends, ...receives]) {
    if (!events.some((event) => event.type === type)) throw unlisted(type, events);
  }
  const ids = uniqueIds(events.flatMap(({ type, topic }) => [type, topic]));
  const topics = [...new Set(events.map(({ topic }) => topic))].sort();
  const channels = topics.map((topic) => ({ topic, events: events.filter((event) => event.topic === topic) }));
  return {
    asyncapi: "3.0.0",
    info,
    ...(servers && { servers }),
    channels: Object.fromEntries(channels.map((each) => [ids(each.topic), channelObject(each, ids)])),
    operations: Object.fromEntries(
      channels.flatMap((each) => [
        ...operation("send", each, sends, ids),
        ...operation("receive", each, receives, ids),
      ]),
    ),
    components: components(events, (type) => receives.includes(type) && !sends.includes(type), ids, options),
  };
}

interface Channel {
  readonly topic: string;
  readonly events: readonly EventDefinition[];
}

type Ids = (name: string) => string;

function channelObject({ topic, events }: Channel, ids: Ids): JsonSchema {
  const messages = events.map(({ type }) => [ids(type), ref("components", "messages", ids(type))]);
  return { address: topic, messages: Object.fromEntries(messages) };
}

/** Undefined if no message of the channel is sent, or received. */
function operation(
  action: "send" | "receive",
  { topic, events }: Channel,
  types: readonly string[],
  ids: Ids,
): [string, JsonSchema][] {
  const messages = events
    .filter(({ type }) => types.includes(type))
    .map(({ type }) => ref("channels", ids(topic), "messages", ids(type)));
  return messages.length === 0
    ? []
    : [[`${action}.${ids(topic)}`, { action, channel: ref("channels", ids(topic)), messages }]];
}

function components(
  events: readonly EventDefinition[],
  onlyReceived: (type: string) => boolean,
  ids: Ids,
  options: AsyncApiOptions,
): AsyncApiDocument["components"] {
  const { attributePrefix = "cloudEvents:" } = options;
  const schemas: Record<string, JsonSchema> = {};
  const messages: Record<string, JsonSchema> = {};
  for (const event of events) {
    const id = ids(event.type);
    let payload: AsyncApiPayload | JsonSchema | undefined = options.payload?.(event);
    // A sent message has what the schema returned; a message that is only received, what it takes.
    const wanted = { target: "draft-07", of: onlyReceived(event.type) ? "input" : "output" } as const;
    const schema = payload === undefined ? jsonSchemaOf(event, wanted, options) : undefined;
    if (schema !== undefined) {
      payload = ref("components", "schemas", id);
      schemas[id] = embedded(schema, payload.$ref as string);
    }
    messages[id] = message(event, attributePrefix, payload);
  }
  return { messages, messageTraits: { CloudEvent: cloudEvent(attributePrefix) }, schemas };
}

function message(
  event: EventDefinition,
  prefix: string,
  payload: JsonSchema | AsyncApiPayload | undefined,
): JsonSchema {
  const { type, version, dataschema, contentType, docs } = event;
  const fixed = Object.entries({ type, dataversion: version, dataschema }).filter(([, value]) => value !== undefined);
  const properties = Object.fromEntries(fixed.map(([name, value]) => [prefix + name, { const: value }]));
  return {
    name: type,
    ...docs,
    contentType,
    // Lists all of them, since this list replaces that of a trait.
    headers: { type: "object", properties, required: [...new Set([...required(prefix), ...Object.keys(properties)])] },
    ...(payload && { payload }),
    traits: [ref("components", "messageTraits", "CloudEvent")],
  };
}

/** What all messages share: the attributes of CloudEvents as headers, and the extensions that Postbox knows. */
function cloudEvent(prefix: string): JsonSchema {
  const string = { type: "string", minLength: 1 };
  const time = { type: "string", format: "date-time" };
  const attributes = {
    specversion: { const: "1.0" },
    id: string,
    source: { ...string, format: "uri-reference" },
    type: string,
    subject: string,
    time,
    dataschema: { ...string, format: "uri" },
    partitionkey: string,
    correlationid: string,
    causationid: string,
    dataversion: string,
    expirytime: time,
    traceparent: string,
    tracestate: string,
  };
  return {
    headers: {
      type: "object",
      properties: Object.fromEntries(Object.entries(attributes).map(([name, value]) => [prefix + name, value])),
      required: required(prefix),
    },
    correlationId: {
      description: "The same for everything that follows from one request.",
      location: `$message.header#/${prefix}correlationid`,
    },
  };
}

function required(prefix: string): readonly string[] {
  return ["specversion", "id", "source", "type"].map((name) => prefix + name);
}

function ref(...path: readonly string[]): { readonly $ref: string } {
  return { $ref: `#/${path.join("/")}` };
}

/** The unique names by which a document refers to types and topics: letters, digits, `.`, `-` and `_` only. */
function uniqueIds(names: readonly string[]): Ids {
  const ids = new Map<string, string>();
  const taken = new Set<string>();
  for (const name of new Set(names)) {
    const wanted = name.replace(/[^\w.-]/g, "_");
    let id = wanted;
    for (let more = 2; taken.has(id); more++) id = `${wanted}_${more}`;
    taken.add(id);
    ids.set(name, id);
  }
  return (name) => ids.get(name) as string;
}

/** The error for a type that no event has. */
export function unlisted(type: string, events: readonly EventDefinition[]): ConfigError {
  const nearest = nearestName(
    type,
    events.map((event) => event.type),
  );
  const advice = nearest === undefined ? "add it" : `did you mean '${nearest}'?`;
  return new ConfigError("event-invalid", `the catalog has no event '${type}'; ${advice}`);
}
