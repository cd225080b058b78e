import { PostboxError } from "../errors.js";
import type { Store } from "../store.js";

/** The error for a database that cannot be reached before a handler runs: nothing is wrong with the message, and no attempt is counted. */
export function unavailable(store: Store, error: unknown): unknown {
  if (error instanceof PostboxError) return error;
  const { message } = PostboxError.from(error);
  const text = `${store.name} cannot be reached: ${message}; it is tried again`;
  return new PostboxError("store-unavailable", text, { cause: error });
}

export function isUnavailable(error: unknown): boolean {
  return error instanceof PostboxError && error.code === "store-unavailable";
}
