import type { Runtime } from "./runtime.js";

/**
 * A generator of UUIDv7 strings that strictly increase within it, even when the wall clock stands still or steps back:
 * the 12 bits after the timestamp count within a millisecond, and run over into the timestamp.
 */
export function uuidv7Generator(runtime: Runtime): () => string {
  let lastMs = 0;
  let sequence = 0;
  return () => {
    const bytes = runtime.randomBytes(10);
    const now = runtime.now();
    if (now > lastMs) {
      lastMs = now;
      // Half the range is left for counting up, so that ids of several processes still differ in their first bits.
      sequence = (((bytes[0] as number) << 8) | (bytes[1] as number)) & 0x7ff;
    } else if (++sequence > 0xfff) {
      lastMs++;
      sequence = 0;
    }
    const hex = [
      lastMs.toString(16).padStart(12, "0"),
      (0x7000 | sequence).toString(16),
      (0x8000 | ((((bytes[2] as number) << 8) | (bytes[3] as number)) & 0x3fff)).toString(16),
      Array.from(bytes.subarray(4), (byte) => byte.toString(16).padStart(2, "0")).join(""),
    ] as const;
    return `${hex[0].slice(0, 8)}-${hex[0].slice(8)}-${hex[1]}-${hex[2]}-${hex[3]}`;
  };
}
