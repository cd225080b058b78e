import { type DescField, type DescMessage, isMessage } from "@bufbuild/protobuf";
import { isJson, makerOf, unwrapped } from "./field-form.js";
import { isPlain } from "./is-plain.js";
import { checkDepth, gatherIssues, type Issue, type Path, type Tell } from "./issues.js";
import { checkKeys, chosenOf } from "./member-issues.js";

/**
 * What `create` would drop without a word: keys that are no fields, unknown cases of a oneof, and whatever is neither a message of
 * the right type nor a plain object, such as bytes or a Date, of which it makes a message in which nothing is set. For it, undefined
 * and null are fields that are not set.
 */
export function initializerIssues(desc: DescMessage, value: unknown): Issue[] {
  return gatherIssues((tell) => check(desc, value, [], 1, tell));
}

function check(desc: DescMessage, value: unknown, path: Path, depth: number, tell: Tell): void {
  if (isMessage(value, desc)) return;
  if (isMessage(value)) {
    tell(path, `is a ${value.$typeName}, not a ${desc.typeName}`);
    return;
  }
  if (!isPlain(value)) {
    const maker = makerOf(desc, value);
    const how = maker === undefined ? "" : `: make it with ${maker}`;
    tell(path, `must be an object with the fields of ${desc.typeName}, or such a message${how}`);
    return;
  }
  checkDepth(path, depth);
  checkKeys(desc, value, path, tell);
  for (const member of desc.members) {
    const given = value[member.localName];
    if (given === undefined || given === null) continue;
    if (member.kind === "field") {
      checkField(member, given, [...path, member.localName], depth, tell);
      continue;
    }
    const chosen = chosenOf(member, given, path, tell);
    if (chosen !== undefined) checkField(chosen.field, chosen.value, [...path, chosen.field.localName], depth, tell);
  }
}

function checkField(field: DescField, given: unknown, path: Path, depth: number, tell: Tell): void {
  if (field.fieldKind === "map" && !isPlain(given)) {
    tell(path, "must be an object");
  } else if (field.fieldKind === "list" && !Array.isArray(given)) {
    tell(path, "must be an array");
  } else if (field.message === undefined || isJson(field) || unwrapped(field) !== undefined) {
    // Taken as it is: what is wrong with it shows in the message.
    return;
  } else if (field.fieldKind === "message") {
    check(field.message, given, path, depth + 1, tell);
  } else {
    const items = Array.isArray(given) ? given.entries() : Object.entries(given as object);
    for (const [at, item] of items) check(field.message, item, [...path, at], depth + 1, tell);
  }
}
