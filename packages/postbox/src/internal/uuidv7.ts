import type { Runtime } from "./runtime.js";

/** Of each id: two bytes for where to start counting, and eight that make it unique. */
const randomDigits = 20;
/** Asking for a few bytes costs as much as asking for many. */
const idsAtOnce = 256;

/**
 * A generator of UUIDv7 strings that strictly increase within it, even when the wall clock stands still or steps back:
 * the 12 bits after the timestamp count within a millisecond, and run over into the timestamp.
 */
export function uuidv7Generator(runtime: Runtime): () => string {
  let lastMs = 0;
  let sequence = 0;
  let random = "";
  let used = 0;
  return () => {
    if (used === random.length) {
      random = Buffer.from(runtime.randomBytes((idsAtOnce * randomDigits) / 2)).toString("hex");
      used = 0;
    }
    const digits = random.slice(used, used + randomDigits);
    used += randomDigits;
    const now = runtime.now();
    if (now > lastMs) {
      lastMs = now;
      // Half the range is left for counting up, so that ids of several processes still differ in their first bits.
      sequence = Number.parseInt(digits.slice(0, 4), 16) & 0x7ff;
    } else if (++sequence > 0xfff) {
      lastMs++;
      sequence = 0;
    }
    const time = lastMs.toString(16).padStart(12, "0");
    const variant = (0x8000 | (Number.parseInt(digits.slice(4, 8), 16) & 0x3fff)).toString(16);
    return `${time.slice(0, 8)}-${time.slice(8)}-${(0x7000 | sequence).toString(16)}-${variant}-${digits.slice(8)}`;
  };
}
