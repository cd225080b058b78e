import { PostboxError } from "../errors.js";
import { reasonOf } from "./reason-of.js";

/** The error for an unreachable database. No message is at fault, and no attempt is counted. */
export function unavailable(storeName: string, error: unknown): PostboxError {
  if (error instanceof PostboxError) return error;
  const text =
    `${storeName} cannot be reached: ${reasonOf(error)}; it is tried again; check the database, its connection ` +
    "limit and the network";
  return new PostboxError("store-unavailable", text, { cause: error });
}

export function isUnavailable(error: unknown): boolean {
  return error instanceof PostboxError && error.code === "store-unavailable";
}
