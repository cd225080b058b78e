import type { AnyProblem } from "postbox/admin";
import { withCommand } from "./advice.js";
import { plain } from "./plain-text.js";

/** A problem as one line: a mark for its severity, its code, its box, and what to do. */
export function problemLine({ severity, code, box, text }: AnyProblem): string {
  const where = box === undefined ? "" : ` (${plain(box)})`;
  return `${severity === "error" ? "✗" : "!"} ${code}${where}: ${plain(withCommand(code, text))}`;
}
