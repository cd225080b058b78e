import { PostboxError } from "../errors.js";
import { reasonOf } from "../internal/reason-of.js";
import type { Arrival } from "../store.js";

/** Another transaction holds the same message, or locks the whole inbox, for longer than the lock timeout. */
export function busyError({ consumer, id }: Arrival, lockTimeoutMs: number, cause?: unknown): PostboxError {
  return new PostboxError(
    "inbox-busy",
    `another transaction holds message ${id} of ${consumer}, or the table of the inbox, and did not end within ` +
      `${lockTimeoutMs} ms; it is tried again`,
    { cause },
  );
}

/** The database ended a statement of the inbox for a reason outside of the message. */
export function failedError({ consumer, id }: Arrival, cause: unknown): PostboxError {
  const text =
    `the inbox of ${consumer} got no answer about message ${id}: ${reasonOf(cause)}; ` +
    "it is tried again, and no attempt is counted";
  return new PostboxError("store-failed", text, { cause });
}
