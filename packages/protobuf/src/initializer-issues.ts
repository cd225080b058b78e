import { type DescField, type DescMessage, isMessage } from "@bufbuild/protobuf";
import { isWrapperDesc } from "@bufbuild/protobuf/wkt";
import {
  checkDepth,
  checkKeys,
  chosenField,
  gatherIssues,
  type MessageIssue,
  type Path,
  type Tell,
} from "./message-issues.js";

/**
 * What `create` would drop without a word: keys that are no fields, unknown cases of a oneof, and whatever is neither a message of
 * the right type nor a plain object, such as bytes or a Date, of which it makes a message in which nothing is set.
 */
export function initializerIssues(desc: DescMessage, value: unknown): MessageIssue[] {
  return gatherIssues(desc, (tell) => check(desc, value, [], 1, tell));
}

function check(desc: DescMessage, value: unknown, path: Path, depth: number, tell: Tell): void {
  if (isMessage(value, desc)) return;
  if (isMessage(value)) {
    tell(path, `is a ${value.$typeName}, not a ${desc.typeName}`);
    return;
  }
  if (!isPlain(value)) {
    tell(path, `must be an object with the fields of ${desc.typeName}, or such a message`);
    return;
  }
  checkDepth(path, depth);
  checkKeys(desc, value, Object.keys(value), path, tell);
  for (const member of desc.members) {
    const given = value[member.localName];
    if (given === undefined || given === null) continue;
    if (member.kind === "field") {
      checkField(member, given, [...path, member.localName], depth, tell);
      continue;
    }
    if (!isPlain(given)) {
      tell([...path, member.localName], "must be an object of case and value");
      continue;
    }
    const field = chosenField(member, given, path, tell);
    if (field !== undefined) checkField(field, given.value, [...path, field.localName], depth, tell);
  }
}

function checkField(field: DescField, given: unknown, path: Path, depth: number, tell: Tell): void {
  if (field.fieldKind === "map" && !isPlain(given)) {
    tell(path, "must be an object");
  } else if (field.fieldKind === "list" && !Array.isArray(given)) {
    tell(path, "must be an array");
  } else if (field.message === undefined || isTakenAsItIs(field)) {
    return;
  } else if (field.fieldKind === "message") {
    check(field.message, given, path, depth + 1, tell);
  } else {
    const items = Array.isArray(given) ? given.entries() : Object.entries(given as object);
    for (const [at, item] of items) check(field.message, item, [...path, at], depth + 1, tell);
  }
}

/** A wrapper is written as its value, and a Struct as a JSON object. */
function isTakenAsItIs({ fieldKind, message, oneof, parent }: DescField): boolean {
  if (message?.typeName === "google.protobuf.Struct") return parent?.typeName !== "google.protobuf.Value";
  return fieldKind === "message" && oneof === undefined && message !== undefined && isWrapperDesc(message);
}

/** Also of another realm, or without a prototype. */
function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
