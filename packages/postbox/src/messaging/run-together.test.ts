import { gate } from "@postbox/testkit";
import { describe, expect, it } from "vitest";
import { type Running, runTogether } from "./run-together.js";

/** Writes down when it begins and when it has ended; fails when it is told to. */
function part(name: string, told: string[]) {
  const failure = gate();
  let fails = false;
  let started: { controller: AbortController; ended: Promise<void> } | undefined;
  const run = async (signal: AbortSignal) => {
    told.push(`${name} runs`);
    const aborted = new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => resolve());
      if (signal.aborted) resolve();
    });
    await Promise.race([aborted, failure.opened]);
    // Whoever does not wait for this one to end is seen to be too early.
    await new Promise((resolve) => setImmediate(resolve));
    told.push(`${name} ended`);
    if (fails) throw new Error(`${name} failed`);
  };
  const running: Running = {
    run,
    start() {
      const controller = new AbortController();
      started = { controller, ended: run(controller.signal) };
      started.ended.catch(() => {});
      return Promise.resolve();
    },
    async stop() {
      started?.controller.abort();
      await started?.ended;
    },
  };
  const fail = () => {
    fails = true;
    failure.open();
  };
  return { ...running, fail };
}

function three() {
  const told: string[] = [];
  const [a, b, relay] = [part("a", told), part("b", told), part("relay", told)];
  return { told, a, b, relay, all: runTogether([a, b], [relay]) };
}
const begun = ["a runs", "b runs", "relay runs"];

describe("runTogether", () => {
  it("ends the last when the first have ended", async () => {
    const { told, all } = three();
    const controller = new AbortController();
    const running = all.run(controller.signal);
    controller.abort();
    await running;
    expect(told).toEqual([...begun, "a ended", "b ended", "relay ended"]);
  });

  it("stops them in the same order", async () => {
    const { told, all } = three();
    all.start();
    await all.stop();
    expect(told).toEqual([...begun, "a ended", "b ended", "relay ended"]);
  });

  it.each(["b", "relay"] as const)("ends all when %s fails, and fails with it", async (which) => {
    const { told, all, ...parts } = three();
    const running = all.run(new AbortController().signal);
    parts[which].fail();
    await expect(running).rejects.toThrow(`${which} failed`);
    expect(told).toHaveLength(6);
    expect(told.indexOf("relay ended")).toBe(which === "relay" ? 3 : 5);
  });

  it("tells of one that fails while it ends", async () => {
    const { told, all, relay } = three();
    const controller = new AbortController();
    const running = all.run(controller.signal);
    controller.abort();
    relay.fail();
    await expect(running).rejects.toThrow("relay failed");
    expect(told).toHaveLength(6);
  });

  it("stops all though one of them has failed, and tells of it", async () => {
    const { told, all, a } = three();
    all.start();
    a.fail();
    await expect(all.stop()).rejects.toThrow("a failed");
    expect(told).toHaveLength(6);
  });

  it("starts all or none", async () => {
    const { told, a, b } = three();
    const refusing: Running = {
      ...b,
      start() {
        throw new Error("refused");
      },
    };
    expect(() => runTogether([a, refusing], []).start()).toThrow("refused");
    await a.stop();
    expect(told).toEqual(["a runs", "a ended"]);
  });
});
