import type { Status } from "../admin.js";
import { ConfigError } from "../errors.js";

/** Where a page ended: the next one goes on below this position of this status, then with those statuses after it. */
export interface PageCursor {
  readonly status: Status;
  readonly position: number;
}

/** The `next` of a page: opaque, since what is in it may change. */
export function writePageCursor({ status, position }: PageCursor): string {
  return Buffer.from(JSON.stringify([status, position])).toString("base64url");
}

/** What `writePageCursor` wrote. Anything else, and one of a status that is not listed, is `option-invalid`. */
export function readPageCursor(text: string, listed: readonly Status[]): PageCursor {
  const [status, position] = partsOf(text);
  const cursor = { status: status as Status, position: position as number };
  const stands = listed.includes(cursor.status) && Number.isSafeInteger(position) && cursor.position >= 0;
  // Decoding passes over what does not belong there, so only what is written back the same was one of ours.
  if (stands && writePageCursor(cursor) === text) return cursor;
  throw new ConfigError(
    "option-invalid",
    "admin.list: option 'after' is not the 'next' of a page with the same 'status'; " +
      "pass it unchanged, or omit it for the first page",
    { path: "after" },
  );
}

function partsOf(text: string): readonly unknown[] {
  try {
    const parts: unknown = JSON.parse(Buffer.from(text, "base64url").toString());
    return Array.isArray(parts) ? parts : [];
  } catch {
    return [];
  }
}
