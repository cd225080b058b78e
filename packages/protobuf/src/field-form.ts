import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { isWrapperDesc } from "@bufbuild/protobuf/wkt";

/**
 * Whether protobuf-es represents a Struct in this field as a plain JSON object. Inside a Value, a Struct is a message.
 */
export function isJson({ message, parent }: DescField): boolean {
  return message?.typeName === "google.protobuf.Struct" && parent?.typeName !== "google.protobuf.Value";
}

/** The value field of a wrapper such as StringValue, if protobuf-es represents this field by the bare value. */
export function unwrapped({ fieldKind, message, oneof }: DescField): DescField | undefined {
  return fieldKind === "message" && oneof === undefined && isWrapperDesc(message as DescMessage)
    ? message?.fields[0]
    : undefined;
}

/** The protobuf-es function that converts such a value to this message; undefined if there is none. */
export function makerOf({ typeName }: DescMessage, value: unknown): string | undefined {
  return typeName === "google.protobuf.Timestamp" && value instanceof Date ? "timestampFromDate" : undefined;
}
