import { createHash } from "node:crypto";

/** The lanes that every box has. */
export const laneCount = 64;

/**
 * The lane of a message: the first byte of SHA-256 of its key, or of its id where it has no key, modulo the
 * number of lanes. It must never change, and whoever appends by other means (SQL) must follow it: the rows of one key
 * keep their order only within one lane.
 */
export function laneOf(keyOrId: string): number {
  return (createHash("sha256").update(keyOrId, "utf8").digest()[0] as number) % laneCount;
}
