/** What an error may have of a database's; `originalCode` and `driverAdapterError` are Prisma's. */
interface Layer {
  readonly code?: unknown;
  readonly originalCode?: unknown;
  readonly cause?: unknown;
  readonly meta?: { readonly driverAdapterError?: unknown };
}

/** What the server says of a statement in a transaction that has failed. */
export const failedTransaction = "25P02";

/**
 * The five-character code of a database's error, also where an ORM wrapped it in errors of its own; undefined for
 * what did not come from the database.
 */
export function sqlState(error: unknown): string | undefined {
  try {
    return stateIn(error);
  } catch {
    // What a user's code throws may have getters that throw. It did not come from the database.
    return undefined;
  }
}

function stateIn(error: unknown): string | undefined {
  for (let at = error, depth = 0; typeof at === "object" && at !== null && depth < 5; depth++) {
    const { code, originalCode, cause, meta } = at as Layer;
    const state = originalCode ?? code;
    // Node's own codes (ECONNREFUSED, EPIPE …) have the same shape; those of a database have a digit. Prisma's begin with P1 to P9,
    // which PostgreSQL leaves alone.
    if (typeof state === "string" && /^(?=.*\d)(?!P[1-9])[0-9A-Z]{5}$/.test(state)) return state;
    at = cause ?? meta?.driverAdapterError;
  }
  return undefined;
}
