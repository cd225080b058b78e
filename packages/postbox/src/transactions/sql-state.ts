/**
 * The five-character code of a database's error, also where an ORM wrapped it in errors of its own; undefined for
 * what did not come from the database.
 */
export function sqlState(error: unknown): string | undefined {
  for (let at = error, depth = 0; typeof at === "object" && at !== null && depth < 5; depth++) {
    const { code, cause } = at as { readonly code?: unknown; readonly cause?: unknown };
    // Node's own codes (ECONNREFUSED, EPIPE …) have the same shape; those of a database have a digit.
    if (typeof code === "string" && /^(?=.*\d)[0-9A-Z]{5}$/.test(code)) return code;
    at = cause;
  }
  return undefined;
}
