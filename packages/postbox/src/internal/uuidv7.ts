import type { Runtime } from "./runtime.js";

/** Random digits per id: two bytes for the start of the counter, and eight that make it unique. */
const randomDigits = 20;
/** Few random bytes cost as much as many. */
const idsAtOnce = 256;

/**
 * A generator of UUIDv7 strings that strictly increase, even if the wall clock stands still or steps back: the 12 bits
 * after the timestamp count within a millisecond, and overflow into the timestamp.
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
      // Half of the range is left for counting, so that ids of several processes still differ in their first bits.
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
