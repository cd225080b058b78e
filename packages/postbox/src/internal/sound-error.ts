import { PostboxError } from "../errors.js";

/**
 * An Error that can be looked at, of whatever was thrown: user code throws anything, also errors without a message, and
 * proxies.
 */
export function soundError(thrown: unknown): Error {
  try {
    if (thrown instanceof Error && typeof thrown.message === "string") return thrown;
  } catch {
    // Told below.
  }
  return PostboxError.from(thrown);
}
