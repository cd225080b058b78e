import { soundError } from "./sound-error.js";

/**
 * The text of whatever was thrown, without the code `unknown`, which says nothing. An error of a connection that
 * several addresses refused has no text, so its code is used.
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
