import { createHash } from "node:crypto";

/**
 * The lane of a message: the first byte of SHA-256 of its key, or of its id where it has no key, modulo 64.
 * The same rule stands in SQL (`postbox.publish`), so it must never change.
 */
export function laneOf(keyOrId: string): number {
  return (createHash("sha256").update(keyOrId, "utf8").digest()[0] as number) & 63;
}
