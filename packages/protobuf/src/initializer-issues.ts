import { type DescField, type DescMessage, isMessage, ScalarType } from "@bufbuild/protobuf";
import { isJson, makerOf, unwrapped } from "./field-form.js";
import { isPlain } from "./is-plain.js";
import { checkDepth, gatherIssues, type Issue, type Path, type Tell } from "./issues.js";
import { checkKeys, chosenOf } from "./member-issues.js";

/**
 * Reports what `create` would drop silently: keys that are not fields, unknown cases of a oneof, and values that are
 * neither a message of the right type nor a plain object, such as bytes or a Date. From those it would make an empty
 * message. To `create`, undefined and null are fields that are not set.
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
  } else if (field.fieldKind === "map" || field.fieldKind === "list") {
    const items = Array.isArray(given) ? given.entries() : Object.entries(given as object);
    for (const [at, item] of items) checkSingle(field, item, [...path, at], depth, tell);
  } else {
    checkSingle(field, given, path, depth, tell);
  }
}

/**
 * Checks one value: of the field itself, or an item of its list or map. `messageIssues` checks what `create` copies
 * unchanged.
 */
function checkSingle(field: DescField, given: unknown, path: Path, depth: number, tell: Tell): void {
  const { message, scalar } = unwrapped(field) ?? field;
  if (message !== undefined && !isJson(field)) {
    check(message, given, path, depth + 1, tell);
  } else if (scalar === ScalarType.BYTES && Array.isArray(given)) {
    // `create` would convert any array to bytes: 300 becomes 44, and text becomes 0.
    tell(path, "must be a Uint8Array");
  }
}
