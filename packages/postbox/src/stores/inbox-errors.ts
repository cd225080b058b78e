import { PostboxError } from "../errors.js";
import { reasonOf } from "../internal/reason-of.js";
import type { Arrival } from "../store.js";

/** Another transaction has the same message, or all of the inbox, and for longer than anybody waits. */
export function busyError({ consumer, id }: Arrival, lockTimeoutMs: number, cause?: unknown): PostboxError {
  return new PostboxError(
    "inbox-busy",
    `another transaction holds message ${id} of ${consumer}, or the table of the inbox, and did not end within ` +
      `${lockTimeoutMs} ms; it is tried again`,
    { cause },
  );
}

/** The database ended the inbox's own statement, for a reason that lies outside of the message. */
export function failedError({ consumer, id }: Arrival, cause: unknown): PostboxError {
  const text =
    `the inbox of ${consumer} got no answer about message ${id}: ${reasonOf(cause)}; ` +
    "it is tried again, and no attempt is counted";
  return new PostboxError("store-failed", text, { cause });
}
