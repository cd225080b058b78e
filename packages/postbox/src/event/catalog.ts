import { ConfigError } from "../errors.js";
import { checkOptions, oneOf, text } from "../options.js";
import { type AsyncApiDocument, type AsyncApiOptions, asyncApi, unlisted } from "./async-api.js";
import type { DataIn, EventDefinition, MessageOptions, Published } from "./define-event.js";
import { embedded, type JsonSchemaOptions, jsonSchemaOf, jsonSchemaRules } from "./json-schema.js";
import type { JsonSchema } from "./standard-schema.js";

/** An event, or a list of events under the name `events`, as in generated code. */
export type CatalogEntry = EventDefinition | { readonly events: readonly EventDefinition[] };

type EventsOf<Entry> = Entry extends { readonly events: readonly (infer E extends EventDefinition)[] }
  ? E
  : Extract<Entry, EventDefinition>;

type EventOf<E extends EventDefinition, Type extends string> = Extract<E, { readonly type: Type }>;

/** A publisher, an outbox, or an outbox in a transaction. */
export interface TakesEvents {
  publish<E extends EventDefinition>(event: E, data: DataIn<E>, options?: MessageOptions): Promise<Published>;
}

/** Publishes by type. */
export interface CatalogPublisher<E extends EventDefinition> {
  publish<Type extends E["type"]>(
    type: Type,
    data: DataIn<EventOf<E, Type>>,
    options?: MessageOptions,
  ): Promise<Published>;
}

export interface JsonSchemaDocumentOptions extends JsonSchemaOptions {
  /** The address of the document. Defaults to none. */
  readonly id?: string;
  /**
   * `output` describes what the schemas return, which is what is published; `input` describes what they accept.
   * Defaults to `output`.
   */
  readonly of?: "input" | "output";
}

/** A list of events, with each type once: to publish by type, to set up a broker's topology, and for documents. */
export interface Catalog<E extends EventDefinition = EventDefinition> {
  /** In the order of their types. */
  readonly events: readonly E[];
  /** `router.on(catalog.byType["shop.orders.v1.OrderPlaced"], handler)`. */
  readonly byType: { readonly [Type in E["type"]]: EventOf<E, Type> };
  /** Publishes by type, through the given publisher or outbox. */
  publisher(to: TakesEvents): CatalogPublisher<E>;
  /** The events as an AsyncAPI 3.0 document. The order in which events were given does not matter. */
  asyncApi(options: AsyncApiOptions<E["type"]>): AsyncApiDocument;
  /**
   * The schemas of all data as one JSON Schema 2020-12 document, by type in `$defs`. Its `$comment` names events that
   * have no JSON Schema because their data is not JSON.
   */
  jsonSchema(options?: JsonSchemaDocumentOptions): JsonSchema;
}

/**
 * Collects events, and lists of events from generated code. An event that is given twice is listed once. Throws
 * `event-invalid` if two definitions have the same type.
 *
 * @example
 * ```ts
 * const catalog = defineCatalog([OrderPlaced]);
 * const document = catalog.asyncApi({ info: { title: "Shop", version: "1.0.0" } });
 * ```
 */
export function defineCatalog<const Entries extends readonly CatalogEntry[]>(
  entries: Entries,
): Catalog<EventsOf<Entries[number]>> {
  type E = EventsOf<Entries[number]>;
  const found = new Map<string, EventDefinition>();
  for (const event of Array.isArray(entries) ? entries.flatMap(eventsOf) : [undefined]) {
    if (typeof event?.validate !== "function") {
      throw new ConfigError("event-invalid", "defineCatalog takes an array of events, or of lists with 'events'");
    }
    // Two lists may contain the same event.
    if ((found.get(event.type) ?? event) !== event) {
      throw new ConfigError(
        "event-invalid",
        `defineCatalog: two definitions of the type ${event.type}; list one of them`,
      );
    }
    found.set(event.type, event);
  }
  const events = [...found.keys()].sort().map((type) => found.get(type) as E);
  const byType = Object.assign(Object.create(null), Object.fromEntries(events.map((event) => [event.type, event])));
  return Object.freeze({
    events: Object.freeze(events),
    byType: Object.freeze(byType),
    publisher: (to) => ({
      async publish(type, data, options) {
        const event = found.get(type) as EventOf<E, typeof type> | undefined;
        if (event === undefined) throw unlisted(type, events);
        return to.publish(event, data, options);
      },
    }),
    asyncApi: (options) => asyncApi(events, options),
    jsonSchema: (options = {}) => jsonSchemaDocument(events, options),
  } satisfies Catalog<E>);
}

function eventsOf(entry: CatalogEntry): readonly EventDefinition[] {
  return typeof entry === "object" && entry !== null && "events" in entry ? entry.events : [entry];
}

function jsonSchemaDocument(events: readonly EventDefinition[], options: JsonSchemaDocumentOptions): JsonSchema {
  checkOptions("jsonSchema", options, { ...jsonSchemaRules, id: text, of: oneOf("input", "output") });
  const { id, of = "output" } = options;
  const schemas = events.map((event) => ({
    event,
    schema: jsonSchemaOf(event, { target: "draft-2020-12", of }, options),
  }));
  const without = schemas.flatMap(({ event: { type, contentType }, schema }) =>
    schema === undefined ? [`${type} (${contentType})`] : [],
  );
  const defs = schemas.flatMap(({ event: { type }, schema }) =>
    schema === undefined ? [] : [[type, embedded(schema, `#/$defs/${pointerTo(type)}`)]],
  );
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    ...(id !== undefined && { $id: id }),
    ...(without.length > 0 && { $comment: `without a JSON Schema: ${without.join(", ")}` }),
    $defs: Object.fromEntries(defs),
  };
}

/** A step of a JSON Pointer in a URI. */
function pointerTo(name: string): string {
  return encodeURIComponent(name.replaceAll("~", "~0").replaceAll("/", "~1"));
}
