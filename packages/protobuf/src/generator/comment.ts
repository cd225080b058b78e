import type { DescMessage } from "@bufbuild/protobuf";
import { getComments } from "@bufbuild/protoplugin";

/** What the `.proto` says above a message: for those who read code and documents, without what is said to linters. */
export function commentOf(message: DescMessage): string | undefined {
  // Of a comment that begins with /** the compiler leaves one star.
  const text = getComments(message).leading?.replace(/^\*/, "") ?? "";
  const lines = text.split("\n").map((line) => line.replace(/^ /, "").trimEnd());
  const comment = lines
    .filter((line) => !line.startsWith("buf:lint:"))
    .join("\n")
    .replace(/^\n+|\n+$/g, "");
  return comment === "" ? undefined : comment;
}
