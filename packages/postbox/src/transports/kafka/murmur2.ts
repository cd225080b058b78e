/**
 * The partition of a key, as Java's default partitioner computes it: the 32-bit murmur2 hash of the bytes of the key,
 * without its sign. Producers in other languages that follow Java agree on it.
 */
export function partitionOf(key: Uint8Array, partitions: number): number {
  return (murmur2(key) & 0x7fffffff) % partitions;
}

const seed = 0x9747b28c;
const factor = 0x5bd1e995;

function murmur2(bytes: Uint8Array): number {
  const { length } = bytes;
  let hash = seed ^ length;
  const at = (place: number) => bytes[place] as number;
  const whole = length - (length % 4);
  for (let place = 0; place < whole; place += 4) {
    let word = at(place) | (at(place + 1) << 8) | (at(place + 2) << 16) | (at(place + 3) << 24);
    word = Math.imul(word, factor);
    word = Math.imul(word ^ (word >>> 24), factor);
    hash = Math.imul(hash, factor) ^ word;
  }
  const rest = length % 4;
  if (rest === 3) hash ^= at(whole + 2) << 16;
  if (rest >= 2) hash ^= at(whole + 1) << 8;
  if (rest >= 1) hash = Math.imul(hash ^ at(whole), factor);
  hash = Math.imul(hash ^ (hash >>> 13), factor);
  return hash ^ (hash >>> 15);
}
