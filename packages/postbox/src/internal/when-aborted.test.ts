import { getEventListeners } from "node:events";
import { expect, it } from "vitest";
import { whenAborted } from "./when-aborted.js";

it("calls each task once when the signal is aborted, or at once if it is", () => {
  const controller = new AbortController();
  const calls: string[] = [];
  whenAborted(controller.signal, () => calls.push("a"));
  const cancel = whenAborted(controller.signal, () => calls.push("b"));
  whenAborted(controller.signal, () => calls.push("c"));
  cancel();
  expect(calls).toEqual([]);
  controller.abort();
  expect(calls).toEqual(["a", "c"]);
  whenAborted(controller.signal, () => calls.push("d"));
  expect(calls).toEqual(["a", "c", "d"]);
});

it("adds one listener to a signal, however many wait", () => {
  const { signal } = new AbortController();
  const cancels = Array.from({ length: 100 }, () => whenAborted(signal, () => {}));
  for (const cancel of cancels) cancel();
  whenAborted(signal, () => {});
  expect(getEventListeners(signal, "abort")).toHaveLength(1);
});
