import type { DescField, DescMessage, Message } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { isJson, makerOf, unwrapped } from "./field-form.js";
import { isPlain } from "./is-plain.js";
import { checkDepth, gatherIssues, type Issue, type Path, type Tell } from "./issues.js";
import { checkJsonObject } from "./json-issues.js";
import { checkKeys, chosenOf } from "./member-issues.js";
import { enumProblem, keyTextProblem, scalarProblem, textualProblem } from "./scalar-problem.js";

/**
 * Reports what the encoder would refuse or change silently: text for a number, half of a surrogate pair, undefined for
 * text, a value that a closed enum does not have.
 *
 * Types forbid most of it. This check is for untyped callers, and for messages that were made by spreading another
 * message, which `create` never sees. It reads values as the encoder does, because reflection would return zero for
 * undefined.
 */
export function messageIssues(desc: DescMessage, message: Message): Issue[] {
  return gatherIssues((tell) => check(desc, message, [], 1, tell));
}

function check(desc: DescMessage, message: unknown, path: Path, depth: number, tell: Tell): void {
  checkDepth(path, depth);
  const { $typeName, $unknown, ...values } = (message ?? {}) as Message & Readonly<Record<string, unknown>>;
  if ($typeName !== desc.typeName) {
    const what = $typeName === undefined ? "not a message, although inside of one" : `a ${$typeName}`;
    tell(path, `is ${what}; make it with ${makerOf(desc, message) ?? `create, of ${desc.typeName}`}`);
    return;
  }
  checkKeys(desc, values, path, tell);
  for (const member of desc.members) {
    const value = (message as typeof values)[member.localName];
    if (member.kind === "oneof") {
      const chosen = chosenOf(member, value, path, tell);
      if (chosen !== undefined) checkSingle(chosen.field, chosen.value, [...path, chosen.field.localName], depth, tell);
      else if (desc.typeName === "google.protobuf.Value") tell(path, "is a google.protobuf.Value without a kind");
    } else if (value !== undefined || member.presence === FeatureSet_FieldPresence.IMPLICIT) {
      checkField(member, value, [...path, member.localName], depth, tell);
    }
  }
}

function checkField(field: DescField, value: unknown, path: Path, depth: number, tell: Tell): void {
  if (field.fieldKind === "list") {
    if (!Array.isArray(value)) tell(path, "must be an array");
    // `entries` also visits the holes of a sparse array.
    else for (const [at, item] of value.entries()) checkSingle(field, item, [...path, at], depth, tell);
  } else if (field.fieldKind === "map") {
    if (!isPlain(value)) tell(path, "must be an object");
    else for (const entry of Object.entries(value)) checkEntry(field, entry, path, depth, tell);
  } else {
    checkSingle(field, value, path, depth, tell);
  }
}

function checkEntry(
  field: DescField & { fieldKind: "map" },
  [key, value]: readonly [string, unknown],
  outer: Path,
  depth: number,
  tell: Tell,
): void {
  const path = [...outer, key];
  const problem = keyTextProblem(field.mapKey, key);
  if (problem !== undefined) tell(path, `its key ${problem}`);
  checkSingle(field, value, path, depth, tell);
}

/** Checks one value: of the field itself, or an item of its list or map. */
function checkSingle(field: DescField, value: unknown, path: Path, depth: number, tell: Tell): void {
  const inner = unwrapped(field);
  if (inner !== undefined) {
    checkSingle(inner, value, path, depth, tell);
  } else if (isJson(field)) {
    checkJsonObject(value, path, depth + 1, tell);
  } else if (field.message !== undefined) {
    check(field.message, value, path, depth + 1, tell);
  } else {
    const problem = problemOf(field, value);
    if (problem !== undefined) tell(path, problem);
  }
}

function problemOf(field: DescField & { readonly message: undefined }, value: unknown): string | undefined {
  if (field.enum !== undefined) return enumProblem(field.enum, value);
  const textual = field.fieldKind !== "map" && field.longAsString;
  return textual ? textualProblem(field.scalar, value) : scalarProblem(field.scalar, value);
}
