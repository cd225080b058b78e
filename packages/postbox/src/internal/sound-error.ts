import { PostboxError } from "../errors.js";

/**
 * An Error that is safe to inspect, made of whatever was thrown: user code may throw anything, including errors without
 * a message, and proxies.
 */
export function soundError(thrown: unknown): Error {
  try {
    if (thrown instanceof Error && typeof thrown.message === "string") return thrown;
  } catch {
    // Converted below.
  }
  return PostboxError.from(thrown);
}
