import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { type Runtime, runtimeWith, sleep } from "./runtime.js";
import { withTimeout } from "./with-timeout.js";

/** A runtime whose timers fire on demand. The set holds the pending ones. */
function timers() {
  const waiting = new Set<() => void>();
  const runtime: Runtime = runtimeWith({
    schedule(task) {
      waiting.add(task);
      return () => waiting.delete(task);
    },
  });
  const fire = () => {
    for (const task of waiting) task();
  };
  return { runtime, waiting, fire };
}

const late = () => new Error("late");
const never = () => new Promise<never>(() => {});
const outerReason = new Error("from outside");

describe("withTimeout", () => {
  it.each<[string, () => Promise<string>, string]>([
    ["its result", async () => "done", "done"],
    ["its failure", () => Promise.reject("failed"), "failed"],
  ])("gives the work's %s, and leaves neither a timer nor a listener", async (_, work, expected) => {
    const { runtime, waiting } = timers();
    const outer = new AbortController();
    let inner: AbortSignal | undefined;
    const outcome = withTimeout(
      runtime,
      5,
      late,
      (signal) => {
        inner = signal;
        return work();
      },
      outer.signal,
    );
    expect(waiting.size).toBe(1);
    expect(await outcome.catch((error) => error)).toBe(expected);
    expect(waiting.size).toBe(0);
    expect(getEventListeners(outer.signal, "abort")).toEqual([]);
    outer.abort();
    expect(inner?.aborted).toBe(false);
  });

  it("gives up when time is up, and tells the work why; what that does afterwards is ignored", async () => {
    const { runtime, fire } = timers();
    let fail = (_: Error) => {};
    let inner: AbortSignal | undefined;
    const outcome = withTimeout(runtime, 5, late, (signal) => {
      inner = signal;
      return new Promise((_, reject) => {
        fail = reject;
      });
    });
    fire();
    await expect(outcome).rejects.toThrow("late");
    expect(inner?.reason).toMatchObject({ message: "late" });
    fail(new Error("too late"));
    await new Promise(setImmediate);
  });

  it.each(["before", "meanwhile"])("gives up when it is told to from outside: %s", async (when) => {
    const { runtime, waiting } = timers();
    const outer = new AbortController();
    if (when === "before") outer.abort(outerReason);
    let inner: AbortSignal | undefined;
    const outcome = withTimeout(
      runtime,
      5,
      late,
      (signal) => {
        inner = signal;
        return never();
      },
      outer.signal,
    );
    outer.abort(outerReason);
    await expect(outcome).rejects.toBe(outerReason);
    expect(inner?.reason).toBe(outerReason);
    expect(waiting.size).toBe(0);
    expect(getEventListeners(outer.signal, "abort")).toEqual([]);
  });

  it("leaves nothing behind when the work throws before it returns", async () => {
    const { runtime, waiting } = timers();
    const throwing = () => {
      throw new Error("at once");
    };
    await expect(withTimeout(runtime, 5, late, throwing)).rejects.toThrow("at once");
    const told = withTimeout(runtime, 5, late, throwing, AbortSignal.abort(outerReason));
    await expect(told).rejects.toBe(outerReason);
    await new Promise(setImmediate);
    expect(waiting.size).toBe(0);
  });
});

describe("sleep", () => {
  it.each(["time", "signal"])("ends by %s, and leaves neither a timer nor a listener", async (by) => {
    const { runtime, waiting, fire } = timers();
    const controller = new AbortController();
    const slept = sleep(runtime, 5, controller.signal);
    expect(waiting.size).toBe(1);
    if (by === "time") fire();
    else controller.abort();
    await slept;
    expect(waiting.size).toBe(0);
    expect(getEventListeners(controller.signal, "abort")).toEqual([]);
  });

  it("does not begin when it is told to stop already", async () => {
    const { runtime, waiting } = timers();
    await sleep(runtime, 5, AbortSignal.abort());
    expect(waiting.size).toBe(0);
  });
});
