import * as crypto from "node:crypto";

/** The lanes that every box has. */
export const laneCount = 64;

/**
 * The lane of a message: the first byte of the SHA-256 of its key, or of its id if it has no key, modulo the number of
 * lanes. It must never change, and other ways to append (SQL) must compute the same lane: the rows of a key keep their
 * order only within one lane.
 *
 * @example
 * ```ts
 * const lane = laneOf(message.key ?? message.id); // from 0 to laneCount - 1
 * ```
 */
export function laneOf(keyOrId: string): number {
  const known = lanes.get(keyOrId);
  if (known !== undefined) return known;
  const lane = (sha256(keyOrId)[0] as number) % laneCount;
  if (lanes.size === mostKnown) lanes.clear();
  lanes.set(keyOrId, lane);
  return lane;
}

/** A cache: hashing is the most expensive step of an append in this process, and keys repeat. */
const lanes = new Map<string, number>();
const mostKnown = 4096;

/** Uses the one-call `crypto.hash` where Node.js has it (20.12 or later), since this can run for every message. */
const sha256: (text: string) => Buffer =
  typeof crypto.hash === "function"
    ? (text) => crypto.hash("sha256", text, "buffer")
    : (text) => crypto.createHash("sha256").update(text, "utf8").digest();

/** How many times a relay renews its lease before the lease would expire. */
export const renewalsPerLease = 3;
