import { manualRuntime } from "@postbox/testkit";
import { describe, expect, it } from "vitest";
import { type ChangeStep, changeInBatches } from "./change-batches.js";

const upTo = 10_000;

/** Changes the rows with positions 1 to `rows` and records its steps. */
function changing(rows: number) {
  const steps: ChangeStep[] = [];
  const step = async (next: ChangeStep) => {
    steps.push(next);
    const last = Math.min(rows, next.upTo, next.after + next.limit);
    const count = last - next.after;
    return { found: count, count, last };
  };
  return { steps, step };
}

describe("changeInBatches", () => {
  it("goes on until there are no more", async () => {
    const { steps, step } = changing(1200);
    expect(await changeInBatches({ bounds: { most: 5000, upTo, until: 0 } }, manualRuntime(), step)).toEqual({
      count: 1200,
    });
    expect(steps.map(({ after, limit }) => [after, limit])).toEqual([
      [0, 500],
      [500, 500],
      [1000, 500],
    ]);
  });

  it("tells after each batch how much it has changed, and ends between two when its signal is aborted", async () => {
    const { steps, step } = changing(1200);
    const told: number[] = [];
    const stop = new AbortController();
    const onBatch = (changed: number) => {
      told.push(changed);
      if (changed === 1000) stop.abort();
    };
    const change = { bounds: { most: 5000, upTo, until: 0 }, signal: stop.signal, onBatch };
    expect(await changeInBatches(change, manualRuntime(), step)).toEqual({ count: 1000 });
    expect([told, steps.length]).toEqual([[500, 1000], 2]);
  });

  it("ends at its bounds", async () => {
    const most = changing(1200);
    expect(await changeInBatches({ bounds: { most: 700, upTo, until: 0 } }, manualRuntime(), most.step)).toEqual({
      count: 700,
    });
    expect(most.steps.map(({ limit }) => limit)).toEqual([500, 200]);
    const none = changing(1200);
    expect(await changeInBatches({ bounds: { most: 0, upTo: 0, until: 0 } }, manualRuntime(), none.step)).toEqual({
      count: 0,
    });
    expect(none.steps).toEqual([]);
  });

  it("keeps the pace", async () => {
    const runtime = manualRuntime();
    const { steps, step } = changing(1200);
    const done = changeInBatches({ bounds: { most: 30, upTo, until: 0 }, perSecond: 10 }, runtime, step);
    await runtime.advance(999);
    expect(steps).toHaveLength(1);
    await runtime.advance(1);
    expect(steps).toHaveLength(2);
    await runtime.advance(1000);
    expect(await done).toEqual({ count: 30 });
  });

  it("ends between two batches when it is told to, with what it has done", async () => {
    const runtime = manualRuntime();
    const abort = new AbortController();
    const { step } = changing(1200);
    const done = changeInBatches(
      { bounds: { most: 30, upTo, until: 0 }, perSecond: 10, signal: abort.signal },
      runtime,
      step,
    );
    await runtime.advance(500);
    abort.abort();
    expect(await done).toEqual({ count: 10 });
  });
});
