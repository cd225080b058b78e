import { PostboxError } from "../errors.js";
import type { Arrival } from "../store.js";

/** Another transaction has the same message, and for longer than anybody waits. */
export function busyError({ consumer, id }: Arrival, waitMs: number, cause?: unknown): PostboxError {
  return new PostboxError(
    "inbox-busy",
    `${consumer} is handling message ${id} elsewhere, and ${waitMs} ms were not enough to wait for its end; it is tried again`,
    { cause },
  );
}
