import { expect, it } from "vitest";
import { runtimeWith } from "./runtime.js";
import { uuidv7Generator } from "./uuidv7.js";

it("is a UUID of version 7 with the time in front", () => {
  const id = uuidv7Generator(runtimeWith({ now: () => 0x0123456789ab }))();
  expect(id).toMatch(/^01234567-89ab-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

it("strictly increases, though the clock stands still or steps back", () => {
  let now = 1_000_000;
  const next = uuidv7Generator(runtimeWith({ now: () => now }));
  const ids = Array.from({ length: 20_000 }, (_, index) => {
    if (index === 10_000) now -= 500;
    return next();
  });
  expect(ids).toEqual([...ids].sort());
  expect(new Set(ids).size).toBe(ids.length);
});
