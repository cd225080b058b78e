import { gate, manualRuntime } from "@postbox/testkit";
import { expect, it } from "vitest";
import { coalesced } from "./coalesced.js";

it("runs at once, and once more for all that came meanwhile, after a rest", async () => {
  const runtime = manualRuntime();
  let runs = 0;
  const call = coalesced(async () => void runs++, 10, runtime);
  for (let i = 0; i < 1000; i++) call();
  expect(runs).toBe(1);
  await runtime.advance(9);
  expect(runs).toBe(1);
  await runtime.advance(1);
  expect(runs).toBe(2);
  await runtime.advance(100);
  expect(runs).toBe(2);
  call();
  expect(runs).toBe(3);
});

it("never runs twice at a time, however long one takes", async () => {
  const runtime = manualRuntime();
  const done = gate();
  let runs = 0;
  const call = coalesced(
    () => {
      runs++;
      return done.opened;
    },
    10,
    runtime,
  );
  call();
  await runtime.advance(100);
  call();
  await runtime.advance(100);
  expect(runs).toBe(1);
  done.open();
  await runtime.advance(0);
  expect(runs).toBe(2);
});
