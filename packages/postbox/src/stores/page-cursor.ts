import type { Status } from "../admin.js";
import { ConfigError } from "../errors.js";

/** Where a page ended. The next page continues below this position of this status, then with the following statuses. */
export interface PageCursor {
  readonly status: Status;
  readonly position: number;
}

/** The `next` of a page. It is opaque, because its contents may change. */
export function writePageCursor({ status, position }: PageCursor): string {
  return Buffer.from(JSON.stringify([status, position])).toString("base64url");
}

/**
 * Reads what `writePageCursor` wrote. Throws `option-invalid` for anything else, and for a status that is not listed.
 */
export function readPageCursor(text: string, listed: readonly Status[]): PageCursor {
  const [status, position] = partsOf(text);
  const cursor = { status: status as Status, position: position as number };
  const stands = listed.includes(cursor.status) && Number.isSafeInteger(position) && cursor.position >= 0;
  // Decoding ignores invalid characters. Only a text that encodes back to itself was written by `writePageCursor`.
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
