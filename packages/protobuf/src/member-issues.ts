import type { DescField, DescMessage, DescOneof } from "@bufbuild/protobuf";
import { isPlain } from "./is-plain.js";
import type { Path, Tell } from "./issues.js";

/**
 * Reports keys that would not be published: those that are not fields, such as misspelt ones, and cases of a oneof that
 * are set beside it.
 */
export function checkKeys(desc: DescMessage, values: object, path: Path, tell: Tell): void {
  for (const [key, value] of Object.entries(values)) {
    // Nothing would be lost: spreading an object and setting a key to undefined is the usual way to remove it.
    if (value === undefined) continue;
    const field = Object.hasOwn(desc.field, key) ? desc.field[key] : undefined;
    if (field?.oneof !== undefined) {
      const { localName } = field.oneof;
      tell([...path, key], `is a case of the oneof '${localName}': write ${localName}: { case: "${key}", value }`);
    } else if (field === undefined && !desc.oneofs.some(({ localName }) => localName === key)) {
      const meant = desc.fields.find(({ name }) => name === key)?.localName;
      tell([...path, key], `is not a field of ${desc.typeName}${meant === undefined ? "" : `; here it is '${meant}'`}`);
    }
  }
}

/** The chosen case of a oneof; undefined if there is none. Reports values that choose no case. */
export function chosenOf(
  oneof: DescOneof,
  given: unknown,
  path: Path,
  tell: Tell,
): { readonly field: DescField; readonly value: unknown } | undefined {
  if (!isPlain(given)) {
    tell([...path, oneof.localName], "must be an object of case and value");
    return undefined;
  }
  const { case: chosen, value } = given;
  const field = oneof.fields.find(({ localName }) => localName === chosen);
  if (field !== undefined) return { field, value };
  if ((chosen ?? value) !== undefined) {
    const names = oneof.fields.map(({ localName }) => localName);
    tell([...path, oneof.localName, "case"], `must be one of ${names.join(", ")}`);
  }
  return undefined;
}
