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
  };
}

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
export type SurvivesTheWire<S extends StandardSchema> = [Wire<SchemaOutput<S>>] extends [SchemaInput<S>]
  ? S
  : // Bytes travel as they are, with a content type that is not JSON.
    [SchemaOutput<S>] extends [Uint8Array]
    ? S
    : typeof doesNotSurvive;

/** `data.items[2].price: must be positive`, one issue after the other. */
export function describeIssues(issues: readonly StandardIssue[]): string {
  return issues.map((issue) => `${issuePath(issue)}: ${issue.message}`).join("; ");
}

export function issuePath(issue: StandardIssue | undefined): string {
  let path = "data";
  for (const step of issue?.path ?? []) {
    const key = typeof step === "object" ? step.key : step;
    path += typeof key === "number" ? `[${key}]` : `.${String(key)}`;
  }
  return path;
}
