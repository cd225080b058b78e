import { expect, it } from "vitest";
import { partitionOf } from "./murmur2.js";

// The vectors of Kafka's own tests of its Java client.
it.each([
  ["21", -973932308],
  ["foobar", -790332482],
  ["a-little-bit-long-string", -985981536],
  ["a-little-bit-longer-string", -1486304829],
  ["lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971],
  ["abc", 479470107],
])("the hash of %s is Java's", (key, hash) => {
  expect(partitionOf(Buffer.from(key), 2 ** 31)).toBe(hash & 0x7fffffff);
  expect(partitionOf(Buffer.from(key), 12)).toBe((hash & 0x7fffffff) % 12);
});
