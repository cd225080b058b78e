import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { isWrapperDesc } from "@bufbuild/protobuf/wkt";

/** Whether a Struct is in this field as the JSON object that it stands for; only inside of a Value it is a message. */
export function isJson({ message, parent }: DescField): boolean {
  return message?.typeName === "google.protobuf.Struct" && parent?.typeName !== "google.protobuf.Value";
}

/** The field of the wrapper (StringValue and the like) whose value is in this field in the place of the message. */
export function unwrapped({ fieldKind, message, oneof }: DescField): DescField | undefined {
  return fieldKind === "message" && oneof === undefined && isWrapperDesc(message as DescMessage)
    ? message?.fields[0]
    : undefined;
}

/** What of protobuf-es makes such a message of a value that is none; undefined where nothing does. */
export function makerOf({ typeName }: DescMessage, value: unknown): string | undefined {
  return typeName === "google.protobuf.Timestamp" && value instanceof Date ? "timestampFromDate" : undefined;
}
