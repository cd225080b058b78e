import { shortened } from "../internal/shortened.js";

/**
 * The part of the Standard Schema specification that Postbox uses. Zod, Valibot, ArkType and others implement it, so
 * Postbox depends on none of them.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    /** Standard JSON Schema, if the library implements it. */
    readonly jsonSchema?:
      | {
          readonly input: (options: { readonly target: JsonSchemaTarget }) => object;
          readonly output: (options: { readonly target: JsonSchemaTarget }) => object;
        }
      | undefined;
  };
}

/** The dialect of a JSON Schema. */
export type JsonSchemaTarget = "draft-07" | "draft-2020-12";

/** A JSON Schema document. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** Which JSON Schema of an event is wanted: its dialect, and whether of the schema's input or output. */
export interface JsonSchemaWanted {
  readonly target: JsonSchemaTarget;
  readonly of: "input" | "output";
}

/** A JSON Schema for every dialect and side, or a function that makes one. */
export type JsonSchemaSource = JsonSchema | ((wanted: JsonSchemaWanted) => JsonSchema);

export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

export interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** The schema's input. */
export type SchemaInput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["input"];
/** The schema's output. */
export type SchemaOutput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["output"];

/** Stands for what JSON cannot carry. No schema takes it. */
interface LostOnTheWire {
  readonly "~lost": never;
}

/** The type of a value after a round trip through JSON. */
type Wire<T> = T extends string | number | boolean | null | undefined
  ? T
  : T extends Date
    ? string
    : T extends bigint | symbol | ((...args: never[]) => unknown) | Map<unknown, unknown> | Set<unknown> | Uint8Array
      ? LostOnTheWire
      : T extends readonly unknown[]
        ? { [I in keyof T]: Wire<T[I]> }
        : T extends object
          ? { [K in keyof T]: Wire<T[K]> }
          : T;

/** The compiler's message, and a publisher's for untyped callers. */
export const doesNotSurvive =
  "this schema does not survive the wire: what it returns must be valid input again after JSON; validate the wire form (z.iso.datetime(), z.string()) and convert in the handler";

/**
 * The schema itself if its output is valid input after a round trip through JSON, else a sentence. The handler
 * validates what the publisher's validation returned.
 */
type SurvivesTheWire<S extends StandardSchema> = [Wire<SchemaOutput<S>>] extends [SchemaInput<S>]
  ? S
  : // Bytes travel as they are, with a content type that is not JSON.
    [SchemaOutput<S>] extends [Uint8Array]
    ? S
    : typeof doesNotSurvive;

/** The same for an event with codecs of its own. */
export const notCarried =
  "the codecs of this event do not carry this schema's data: they must take what it returns, and give back what it takes";

/** The same rule if an event's own codecs, instead of JSON, carry the data, which is then `Carried`. */
export type CarriedBy<Carried, S extends StandardSchema> = [Carried] extends [never]
  ? SurvivesTheWire<S>
  : [SchemaOutput<S>] extends [Carried]
    ? [Carried] extends [SchemaInput<S>]
      ? S
      : typeof notCarried
    : typeof notCarried;

const issuesNamed = 5;
const issueLength = 300;
const pathLength = 200;

/**
 * Lists the first issues, as in `data.items[2].price: must be positive`. Limited, since a message can have as many
 * issues as it has items, and the text is stored and logged.
 */
export function describeIssues(issues: readonly StandardIssue[]): string {
  const named = issues
    .slice(0, issuesNamed)
    .map((issue) => `${issuePath(issue)}: ${shortened(String(issue.message), issueLength)}`);
  const more = issues.length - named.length;
  return named.join("; ") + (more > 0 ? `; and ${more.toLocaleString("en")} more` : "");
}

export function issuePath(issue: StandardIssue | undefined): string {
  let path = "data";
  for (const step of issue?.path ?? []) {
    if (path.length > pathLength) break;
    const key = typeof step === "object" ? step.key : step;
    path += typeof key === "number" ? `[${key}]` : `.${String(key)}`;
  }
  return shortened(path, pathLength);
}
