import { expect, it } from "vitest";
import { Room } from "./room.js";

it("is bounded in count and in bytes, and takes one message of any size", () => {
  const room = new Room({ prefetch: 3, prefetchBytes: 100 });
  expect(room.fits(1000)).toBe(true);
  room.take(1000);
  expect(room.fits(1)).toBe(false);
  room.free(1000);
  room.take(60);
  expect(room.fits(40)).toBe(true);
  expect(room.fits(41)).toBe(false);
  room.take(1);
  room.take(1);
  expect(room.fits(0)).toBe(false);
  expect(room.taken).toBe(3);
  room.free(1);
  expect(room.fits(39)).toBe(true);
});
