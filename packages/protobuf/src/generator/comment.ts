import type { DescMessage } from "@bufbuild/protobuf";
import { getComments } from "@bufbuild/protoplugin";

/**
 * The comment above a message in the `.proto`, for readers of code and documentation, without directives for linters.
 */
export function commentOf(message: DescMessage): string | undefined {
  // For a comment that starts with /**, the compiler keeps one star.
  const text = getComments(message).leading?.replace(/^\*/, "") ?? "";
  const lines = text.split("\n").map((line) => line.replace(/^ /, "").trimEnd());
  const comment = lines
    .filter((line) => !line.startsWith("buf:lint:"))
    .join("\n")
    .replace(/^\n+|\n+$/g, "");
  return comment === "" ? undefined : comment;
}
