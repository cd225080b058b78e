import { describe, expect, it } from "vitest";
import { freezeAt } from "./freeze-at.js";
import { settlesWithin } from "./gate.js";
import { manualRuntime } from "./manual-runtime.js";

describe("freezeAt", () => {
  it("never returns from the nth hit, nor from any later failpoint", async () => {
    const { runtime, reached } = freezeAt("relay.sent", { times: 2 });
    await runtime.failpoint?.("relay.sent");
    await runtime.failpoint?.("relay.read");
    expect(await settlesWithin(reached, 5)).toBe(false);
    const frozen = [runtime.failpoint?.("relay.sent"), runtime.failpoint?.("relay.read")];
    await reached;
    for (const hit of frozen) expect(await settlesWithin(Promise.resolve(hit), 5)).toBe(false);
  });

  it("fires no timer once it is frozen", async () => {
    const clock = manualRuntime();
    const { runtime } = freezeAt("relay.sent", { runtime: clock });
    const fired: string[] = [];
    runtime.schedule?.(() => fired.push("before"), 10);
    runtime.schedule?.(() => fired.push("after"), 30);
    await clock.advance(20);
    void runtime.failpoint?.("relay.sent");
    await clock.advance(20);
    expect(fired).toEqual(["before"]);
  });
});

describe("manualRuntime", () => {
  it("runs what becomes due, in order, and what that schedules in turn", async () => {
    const runtime = manualRuntime({ now: 1000 });
    const seen: string[] = [];
    const note = (name: string) => () => seen.push(`${name} at ${runtime.now()}`);
    runtime.schedule(note("b"), 20);
    runtime.schedule(note("a"), 10);
    runtime.schedule(() => void Promise.resolve().then(() => runtime.schedule(note("c"), 15)), 10);
    const cancel = runtime.schedule(note("never"), 12);
    runtime.schedule(note("later"), 100);
    cancel();
    await runtime.advance(50);
    expect(seen).toEqual(["a at 1010", "b at 1020", "c at 1025"]);
    expect([runtime.now(), runtime.monotonic()]).toEqual([1050, 50]);
  });

  it("repeats its random numbers from its seed", () => {
    const draws = (seed: number) => Array.from({ length: 5 }, manualRuntime({ seed }).random);
    expect(draws(7)).toEqual(draws(7));
    expect(draws(7)).not.toEqual(draws(8));
  });
});
