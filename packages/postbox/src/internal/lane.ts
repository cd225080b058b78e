import * as crypto from "node:crypto";

/** The lanes that every box has. */
export const laneCount = 64;

/**
 * The lane of a message: the first byte of SHA-256 of its key, or of its id where it has no key, modulo the
 * number of lanes. It must never change, and whoever appends by other means (SQL) must follow it: the rows of one key
 * keep their order only within one lane.
 */
export function laneOf(keyOrId: string): number {
  const known = lanes.get(keyOrId);
  if (known !== undefined) return known;
  const lane = (sha256(keyOrId)[0] as number) % laneCount;
  if (lanes.size === mostKnown) lanes.clear();
  lanes.set(keyOrId, lane);
  return lane;
}

/** Hashing is the most expensive step of an append on this side, and keys come again. */
const lanes = new Map<string, number>();
const mostKnown = 4096;

/** In one call where there is one (Node 20.12): each message needs it. */
const sha256: (text: string) => Buffer =
  typeof crypto.hash === "function"
    ? (text) => crypto.hash("sha256", text, "buffer")
    : (text) => crypto.createHash("sha256").update(text, "utf8").digest();

/** How often a relay renews its lease before that would expire. */
export const renewalsPerLease = 3;
