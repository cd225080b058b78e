/** Where an error may carry a SQLSTATE. `originalCode` and `driverAdapterError` are Prisma's. */
interface Layer {
  readonly code?: unknown;
  readonly originalCode?: unknown;
  readonly cause?: unknown;
  readonly meta?: { readonly driverAdapterError?: unknown };
}

/** The SQLSTATE of a statement in a transaction that has already failed. */
export const failedTransaction = "25P02";

/**
 * The SQLSTATE of a database error, even if an ORM has wrapped it. Undefined if the error did not come from a database.
 */
export function sqlState(error: unknown): string | undefined {
  try {
    return stateIn(error);
  } catch {
    // User code may throw objects whose getters throw. Those did not come from the database.
    return undefined;
  }
}

function stateIn(error: unknown): string | undefined {
  for (let at = error, depth = 0; typeof at === "object" && at !== null && depth < 5; depth++) {
    const { code, originalCode, cause, meta } = at as Layer;
    const state = originalCode ?? code;
    // Codes of Node (ECONNREFUSED, EPIPE …) have the same shape but no digit. Prisma's begin with P1 to P9, which
    // PostgreSQL does not use.
    if (typeof state === "string" && /^(?=.*\d)(?!P[1-9])[0-9A-Z]{5}$/.test(state)) return state;
    at = cause ?? meta?.driverAdapterError;
  }
  return undefined;
}
