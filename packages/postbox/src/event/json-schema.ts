import { ConfigError } from "../errors.js";
import { isJson } from "../message/codec.js";
import { callback, oneOf } from "../options.js";
import type { EventDefinition } from "./define-event.js";
import type { JsonSchema, JsonSchemaWanted, StandardSchema } from "./standard-schema.js";

/** What to do about schemas that provide no JSON Schema themselves. */
export interface JsonSchemaOptions {
  /**
   * Converts an event's schema, for example with `@valibot/to-json-schema`. If it returns undefined, the schema's own
   * JSON Schema is used. Defaults to that.
   */
  readonly toJsonSchema?: (schema: StandardSchema, wanted: JsonSchemaWanted) => JsonSchema | undefined;
  /** If JSON data has no JSON Schema: `error`, or `any`, a schema that accepts anything. Defaults to `error`. */
  readonly missing?: "error" | "any";
}

export const jsonSchemaRules = { toJsonSchema: callback, missing: oneOf("error", "any") };

/**
 * The JSON Schema of an event's data: the event's `jsonSchema`, the result of `options.toJsonSchema`, or the schema's
 * own. If there is none, undefined for data that is not JSON; for JSON data it throws `json-schema-missing`.
 */
export function jsonSchemaOf(
  event: EventDefinition,
  wanted: JsonSchemaWanted,
  options: JsonSchemaOptions,
): JsonSchema | undefined {
  let cause: unknown;
  try {
    const found = given(event, wanted) ?? options.toJsonSchema?.(event.schema, wanted) ?? said(event, wanted);
    if (found !== undefined) return found;
  } catch (error) {
    cause = error;
  }
  if (!isJson(event.contentType)) return undefined;
  if (options.missing === "any") return {};
  const why = cause instanceof Error ? `: ${cause.message}` : " cannot say it";
  throw new ConfigError(
    "json-schema-missing",
    `no JSON Schema for ${event.type}: its schema (${event.schema["~standard"].vendor})${why}; ` +
      "give 'jsonSchema' to defineEvent, or 'toJsonSchema' to this export, or choose missing: \"any\"",
    { cause },
  );
}

function given({ jsonSchema }: EventDefinition, wanted: JsonSchemaWanted): JsonSchema | undefined {
  return typeof jsonSchema === "function" ? jsonSchema(wanted) : jsonSchema;
}

function said({ schema }: EventDefinition, { target, of }: JsonSchemaWanted): JsonSchema | undefined {
  return schema["~standard"].jsonSchema?.[of]({ target }) as JsonSchema | undefined;
}

const holdingSchemasByName = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);
const holdingData = new Set(["const", "enum", "default", "examples"]);

/** The schema as a part of another document, at `pointer`: its internal references are adjusted. */
export function embedded({ $schema: _, ...schema }: JsonSchema, pointer: string): JsonSchema {
  return moved(schema, pointer) as JsonSchema;
}

function moved(value: unknown, pointer: string): unknown {
  if (Array.isArray(value)) return value.map((each) => moved(each, pointer));
  // A part with its own `$id` is a document of its own wherever it stands.
  if (typeof value !== "object" || value === null || "$id" in value) return value;
  return mapped(value, (inner, key) => {
    if (key === "$ref" && typeof inner === "string" && /^#(\/|$)/.test(inner)) return pointer + inner.slice(1);
    if (holdingData.has(key)) return inner;
    if (holdingSchemasByName.has(key)) return mapped(inner as object, (each) => moved(each, pointer));
    return moved(inner, pointer);
  });
}

function mapped(value: object, change: (inner: unknown, key: string) => unknown): object {
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, change(inner, key)]));
}
