import { soundError } from "./sound-error.js";

/**
 * What was thrown, for a text of ours: without the code `unknown`, which says nothing. A connection that several
 * addresses refused has no text.
 */
export function reasonOf(thrown: unknown): string {
  const error = soundError(thrown);
  const code = codeOf(error);
  if (code === "unknown") return error.message.replace("[unknown] ", "");
  return error.message || code || error.name;
}

function codeOf(error: Error): string | undefined {
  try {
    const { code } = error as { readonly code?: unknown };
    return code === undefined ? undefined : String(code);
  } catch {
    return undefined;
  }
}
