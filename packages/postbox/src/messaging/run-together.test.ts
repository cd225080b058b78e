import { gate } from "@postbox/testkit";
import { describe, expect, it } from "vitest";
import { type Running, runTogether } from "./run-together.js";

/**
 * A part that records when it starts and ends, and fails on demand. It becomes ready at once, or when `readiness`
 * opens.
 */
function part(name: string, told: string[], readiness = opened()) {
  const failure = gate();
  let fails = false;
  let started: { controller: AbortController; ended: Promise<void> } | undefined;
  const run = async (signal: AbortSignal, ready = () => {}) => {
    told.push(`${name} runs`);
    void readiness.opened.then(ready);
    const aborted = new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => resolve());
      if (signal.aborted) resolve();
    });
    await Promise.race([aborted, failure.opened]);
    // Exposes callers that do not wait for this part to end.
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
      return Promise.race([readiness.opened.then(() => !controller.signal.aborted), started.ended.then(() => false)]);
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

function opened() {
  const open = gate();
  open.open();
  return open;
}

function three(readiness = opened()) {
  const told: string[] = [];
  const [a, b, relay] = [part("a", told), part("b", told, readiness), part("relay", told)];
  const allRun = () => expect.poll(() => told.length).toBe(3);
  return { told, a, b, relay, allRun, all: runTogether([a, b], [relay]) };
}
const begun = ["a runs", "b runs", "relay runs"];

describe("runTogether", () => {
  it("ends the last when the first have ended", async () => {
    const { told, all, allRun } = three();
    const controller = new AbortController();
    const running = all.run(controller.signal);
    await allRun();
    controller.abort();
    await running;
    expect(told).toEqual([...begun, "a ended", "b ended", "relay ended"]);
  });

  it("stops them in the same order", async () => {
    const { told, all } = three();
    await all.start();
    await all.stop();
    expect(told).toEqual([...begun, "a ended", "b ended", "relay ended"]);
  });

  it.each(["b", "relay"] as const)("ends all when %s fails, and fails with it", async (which) => {
    const { told, all, allRun, ...parts } = three();
    const running = all.run(new AbortController().signal);
    await allRun();
    parts[which].fail();
    await expect(running).rejects.toThrow(`${which} failed`);
    expect(told).toHaveLength(6);
    expect(told.indexOf("relay ended")).toBe(which === "relay" ? 3 : 5);
  });

  it("tells of one that fails while it ends", async () => {
    const { told, all, relay, allRun } = three();
    const controller = new AbortController();
    const running = all.run(controller.signal);
    await allRun();
    controller.abort();
    relay.fail();
    await expect(running).rejects.toThrow("relay failed");
    expect(told).toHaveLength(6);
  });

  it("stops all though one of them has failed, and tells of it", async () => {
    const { told, all, a } = three();
    await all.start();
    a.fail();
    await expect(all.stop()).rejects.toThrow("a failed");
    expect(told).toHaveLength(6);
  });

  it.each(["run", "start"] as const)("begins the last when all of the first are ready: %s", async (way) => {
    const readiness = gate();
    const { told, all, allRun } = three(readiness);
    const controller = new AbortController();
    const running = way === "run" ? all.run(controller.signal) : all.start();
    await new Promise((resolve) => setImmediate(resolve));
    expect(told).toEqual(["a runs", "b runs"]);
    readiness.open();
    await allRun();
    controller.abort();
    await running;
    if (way === "start") await all.stop();
    expect(told).toHaveLength(6);
  });

  it.each(["run", "start"] as const)("does not begin the last after a stop: %s", async (way) => {
    const readiness = gate();
    const { told, all } = three(readiness);
    const controller = new AbortController();
    const running = way === "run" ? all.run(controller.signal) : all.start();
    controller.abort();
    if (way === "start") await all.stop();
    readiness.open();
    await running;
    expect(told).toEqual(["a runs", "b runs", "a ended", "b ended"]);
  });

  it("says whether it runs: a stop before that starts no more of them", async () => {
    expect(await three().all.start()).toBe(true);
    const readiness = gate();
    const { told, all } = three(readiness);
    const started = all.start();
    await all.stop();
    readiness.open();
    expect(await started).toBe(false);
    expect(told).toEqual(["a runs", "b runs", "a ended", "b ended"]);
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
