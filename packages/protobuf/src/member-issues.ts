import type { DescField, DescMessage, DescOneof } from "@bufbuild/protobuf";
import { isPlain } from "./is-plain.js";
import type { Path, Tell } from "./issues.js";

/**
 * Tells of keys that are no fields, of which nothing would be published: misspelt ones, and cases of a oneof beside it.
 */
export function checkKeys(desc: DescMessage, values: object, path: Path, tell: Tell): void {
  for (const [key, value] of Object.entries(values)) {
    // Nothing is lost, and whoever spreads an object takes a key out of it like this.
    if (value === undefined) continue;
    const field = Object.hasOwn(desc.field, key) ? desc.field[key] : undefined;
    if (field?.oneof !== undefined) {
      const { localName } = field.oneof;
      tell([...path, key], `is a case of the oneof '${localName}': write ${localName}: { case: "${key}", value }`);
    } else if (field === undefined && !desc.oneofs.some(({ localName }) => localName === key)) {
      const meant = desc.fields.find(({ name }) => name === key)?.localName;
      tell([...path, key], `is no field of ${desc.typeName}${meant === undefined ? "" : `; here it is '${meant}'`}`);
    }
  }
}

/**
 * What a oneof has chosen; undefined where nothing is. Tells of what would be no choice at all, though something is
 * given.
 */
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
