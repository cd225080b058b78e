import { type DescField, type DescMessage, type DescOneof, ScalarType } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";

/** What is wrong with a value of a message, and where it is. */
export interface MessageIssue {
  readonly path: Path;
  readonly message: string;
}

export type Path = readonly (string | number)[];
export type Tell = (path: Path, message: string) => void;

/** How deep messages may be inside of messages, the outermost among them: readers go no further. */
const maxDepth = 100;

/** Where messages are deeper than readers go, or inside of themselves. Ends the search: what contains itself twice never ends. */
class TooDeep extends Error {
  constructor(readonly path: Path) {
    super(`is more than ${maxDepth} messages deep, or inside of itself`);
  }
}

export function checkDepth(path: Path, depth: number): void {
  if (depth > maxDepth) throw new TooDeep(path);
}

type Values = Readonly<Record<string, unknown>>;

/** Tells of keys that are no fields, of which nothing would be published: misspelt ones, and cases of a oneof beside it. */
export function checkKeys(desc: DescMessage, values: Values, keys: readonly string[], path: Path, tell: Tell): void {
  for (const key of keys) {
    if (values[key] === undefined) continue;
    const field = Object.hasOwn(desc.field, key) ? desc.field[key] : undefined;
    if (field?.oneof !== undefined) {
      const { localName } = field.oneof;
      tell([...path, key], `is a case of the oneof '${localName}': write ${localName}: { case: "${key}", value }`);
    } else if (field === undefined && !desc.oneofs.some(({ localName }) => localName === key)) {
      tell([...path, key], `is no field of ${desc.typeName}`);
    }
  }
}

/** The field that a oneof says to have chosen. Tells of one that it does not have, which would be no choice at all. */
export function chosenField(oneof: DescOneof, value: unknown, path: Path, tell: Tell): DescField | undefined {
  const { case: chosen } = (value ?? {}) as { readonly case?: unknown };
  if (chosen === undefined || chosen === null) return undefined;
  const field = oneof.fields.find(({ localName }) => localName === chosen);
  if (field === undefined) {
    const names = oneof.fields.map(({ localName }) => localName);
    tell([...path, oneof.localName, "case"], `must be one of ${names.join(", ")}`);
  }
  return field;
}

/** What `search` tells, and why it failed where it did. */
export function gatherIssues(desc: DescMessage, search: (tell: Tell) => void): MessageIssue[] {
  const issues: MessageIssue[] = [];
  try {
    search((path, message) => issues.push({ path, message }));
  } catch (error) {
    issues.push(error instanceof TooDeep ? { path: error.path, message: error.message } : notOne(desc, [], error));
  }
  return issues;
}

/** Reflection fails where a message is none, and the like. */
function notOne({ typeName }: DescMessage, path: Path, error: unknown): MessageIssue {
  return { path, message: `is no ${typeName}: ${error instanceof Error ? error.message : error}` };
}

/**
 * What the encoder would refuse, or worse, turn into something else: text for a number, half of a surrogate pair, an enum's value
 * that a closed enum does not have. Types forbid most of it; this is for callers without them.
 */
export function messageIssues(desc: DescMessage, message: ReflectMessage["message"]): MessageIssue[] {
  return gatherIssues(desc, (tell) => check(reflect(desc, message), [], 1, tell));
}

function check(message: ReflectMessage, path: Path, depth: number, tell: Tell): void {
  checkDepth(path, depth);
  const values = message.message as unknown as Values;
  const { typeName } = message.desc;
  if (values.$typeName !== typeName) {
    const what = values.$typeName === undefined ? "no message, but inside of one" : `a ${values.$typeName}`;
    tell(path, `is ${what}; make it with create, of ${typeName}`);
    return;
  }
  // Whoever builds one from another by spreading it may write what `create` never sees.
  const keys = Object.keys(values).filter((key) => key !== "$typeName" && key !== "$unknown");
  checkKeys(message.desc, values, keys, path, tell);
  for (const oneof of message.oneofs) chosenField(oneof, values[oneof.localName], path, tell);
  for (const field of message.fields) {
    const value = values[field.localName];
    // Reflection takes for unset what is no list or no map.
    if (field.fieldKind === "list" && !Array.isArray(value)) {
      tell([...path, field.localName], "must be an array");
    } else if (field.fieldKind === "map" && (typeof value !== "object" || value instanceof Map)) {
      tell([...path, field.localName], "must be an object");
    } else if (message.isSet(field)) {
      try {
        checkField(message, field, path, depth, tell);
      } catch (error) {
        if (error instanceof TooDeep) throw error;
        const issue = notOne(field.message ?? message.desc, [...path, field.localName], error);
        tell(issue.path, issue.message);
      }
    }
  }
}

function checkField(message: ReflectMessage, field: DescField, outer: Path, depth: number, tell: Tell): void {
  const path = [...outer, field.localName];
  switch (field.fieldKind) {
    case "list": {
      let index = 0;
      for (const item of message.get(field)) checkSingle(field, item, [...path, index++], depth, tell);
      return;
    }
    case "map":
      for (const [key, value] of message.get(field)) {
        const problem = scalarProblem(field.mapKey, key);
        if (problem !== undefined) tell([...path, String(key)], `its key ${problem}`);
        checkSingle(field, value, [...path, String(key)], depth, tell);
      }
      return;
    default:
      checkSingle(field, message.get(field), path, depth, tell);
  }
}

function checkSingle(field: DescField, value: unknown, path: Path, depth: number, tell: Tell): void {
  if (field.message !== undefined) {
    check(value as ReflectMessage, path, depth + 1, tell);
    return;
  }
  const problem = field.enum === undefined ? scalarProblem(field.scalar, value) : enumProblem(field.enum, value);
  if (problem !== undefined) tell(path, problem);
}

function enumProblem({ open, values }: NonNullable<DescField["enum"]>, value: unknown): string | undefined {
  if (open) return scalarProblem(ScalarType.INT32, value);
  return values.some(({ number }) => number === value)
    ? undefined
    : `must be one of ${values.map(({ name }) => name).join(", ")}`;
}

const signed32 = [-(2 ** 31), 2 ** 31 - 1] as const;
const unsigned32 = [0, 2 ** 32 - 1] as const;
const signed64 = [-(2n ** 63n), 2n ** 63n - 1n] as const;
const unsigned64 = [0n, 2n ** 64n - 1n] as const;
const halfPair = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;

function scalarProblem(type: ScalarType, value: unknown): string | undefined {
  switch (type) {
    case ScalarType.STRING:
      if (typeof value !== "string") return "must be a string";
      return halfPair.test(value) ? "has half of a surrogate pair" : undefined;
    case ScalarType.BOOL:
      return typeof value === "boolean" ? undefined : "must be true or false";
    case ScalarType.BYTES:
      return value instanceof Uint8Array ? undefined : "must be a Uint8Array";
    case ScalarType.DOUBLE:
      return typeof value === "number" ? undefined : "must be a number";
    case ScalarType.FLOAT:
      if (typeof value !== "number") return "must be a number";
      return Number.isFinite(value) && !Number.isFinite(Math.fround(value))
        ? "is beyond what a float holds"
        : undefined;
    case ScalarType.INT32:
    case ScalarType.SINT32:
    case ScalarType.SFIXED32:
      return Number.isInteger(value) && within(value as number, signed32) ? undefined : whole(signed32);
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return Number.isInteger(value) && within(value as number, unsigned32) ? undefined : whole(unsigned32);
    case ScalarType.INT64:
    case ScalarType.SINT64:
    case ScalarType.SFIXED64:
      return typeof value === "bigint" && within(value, signed64) ? undefined : whole(signed64);
    case ScalarType.UINT64:
    case ScalarType.FIXED64:
      return typeof value === "bigint" && within(value, unsigned64) ? undefined : whole(unsigned64);
  }
}

function within<N extends number | bigint>(value: N, [least, most]: readonly [N, N]): boolean {
  return value >= least && value <= most;
}

function whole([least, most]: readonly [number | bigint, number | bigint]): string {
  return `must be a ${typeof least === "bigint" ? "bigint" : "whole number"} from ${least} to ${most}`;
}
