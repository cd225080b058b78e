import { expect, it } from "vitest";
import { createIsolation } from "./isolation.js";

it("takes one message at first, and as many as it may once that was no suspect", () => {
  const isolation = createIsolation(10);
  expect(isolation.room).toBe(1);
  isolation.arrived(false);
  expect(isolation.adjust()).toBe(true);
  expect(isolation.room).toBe(10);
  expect(isolation.adjust()).toBe(false);
});

it("narrows at a suspect until as many others as were prefetched with it came alone", () => {
  const isolation = createIsolation(3);
  isolation.arrived(false);
  isolation.adjust();
  isolation.arrived(true);
  expect(isolation.narrowing).toBe(true);
  expect(isolation.adjust()).toBe(true);
  expect(isolation.room).toBe(1);
  isolation.emptied();
  for (const _ of [1, 2]) {
    isolation.arrived(false);
    expect(isolation.adjust()).toBe(false);
  }
  isolation.arrived(false);
  expect(isolation.adjust()).toBe(true);
  expect(isolation.room).toBe(3);
  expect(isolation.narrowing).toBe(false);
});
