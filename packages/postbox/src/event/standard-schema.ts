import { shortened } from "../internal/shortened.js";

/**
 * The part of the Standard Schema specification that Postbox uses, so that Zod, Valibot, ArkType and all others that
 * implement it fit without a dependency on any of them.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    /** Standard JSON Schema, of those who implement it. */
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

export type JsonSchema = Readonly<Record<string, unknown>>;

/** Which JSON Schema of an event is wanted: in which dialect; and of what the schema takes, or of what it returns. */
export interface JsonSchemaWanted {
  readonly target: JsonSchemaTarget;
  readonly of: "input" | "output";
}

/** A JSON Schema that is right however it is wanted, or a function that makes it. */
export type JsonSchemaSource = JsonSchema | ((wanted: JsonSchemaWanted) => JsonSchema);

export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

export interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** What the schema takes. */
export type SchemaInput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["input"];
/** What the schema returns. */
export type SchemaOutput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["output"];

/** Stands for what JSON cannot carry: no schema takes it. */
interface LostOnTheWire {
  readonly "~lost": never;
}

/** What arrives on the other side when JSON has carried a value. */
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

/** What the compiler says, and a publisher that was not asked by one. */
export const doesNotSurvive =
  "this schema does not survive the wire: what it returns must be valid input again after JSON; validate the wire form (z.iso.datetime(), z.string()) and convert in the handler";

/**
 * The schema itself where what it returns is valid input again once JSON has carried it; else a sentence.
 * The handler validates what the publisher's validation returned, so the one must be able to read the other.
 */
type SurvivesTheWire<S extends StandardSchema> = [Wire<SchemaOutput<S>>] extends [SchemaInput<S>]
  ? S
  : // Bytes travel as they are, with a content type that is not JSON.
    [SchemaOutput<S>] extends [Uint8Array]
    ? S
    : typeof doesNotSurvive;

/** The same where an event has codecs of its own. */
export const notCarried =
  "the codecs of this event do not carry this schema's data: they must take what it returns, and give back what it takes";

/** The same rule where not JSON but an event's own codecs carry the data, which is then `Carried`. */
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
 * `data.items[2].price: must be positive`, one issue after the other: the first few of them, since a message can have
 * as many as it has items, and whoever stores or logs the error must not be flooded by it.
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
