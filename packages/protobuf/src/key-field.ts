import { type DescField, ScalarType } from "@bufbuild/protobuf";

/** Integers and strings. Fractions cannot name anything, and bytes need not be text. */
const keyTypes: ReadonlySet<ScalarType> = new Set([
  ScalarType.STRING,
  ScalarType.INT32,
  ScalarType.INT64,
  ScalarType.UINT32,
  ScalarType.UINT64,
  ScalarType.SINT32,
  ScalarType.SINT64,
  ScalarType.FIXED32,
  ScalarType.FIXED64,
  ScalarType.SFIXED32,
  ScalarType.SFIXED64,
]);

/** What kind of field this is if it cannot be the key; undefined if it can. */
export function keyProblem(field: DescField): string | undefined {
  if (field.fieldKind === "list") return "repeated";
  if (field.fieldKind === "enum") return "an enum";
  if (field.fieldKind !== "scalar") return `a ${field.fieldKind}`;
  if (field.oneof !== undefined) return "part of a oneof";
  if (field.scalar === ScalarType.BYTES) return "bytes";
  return keyTypes.has(field.scalar) ? undefined : `a ${ScalarType[field.scalar].toLowerCase()}`;
}
