import { describe, expect, it } from "vitest";
import type { ArchivedMessage } from "../admin.js";
import { runtimeWith } from "../internal/runtime.js";
import { type PurgeBatch, purgeBatches } from "./purge-batches.js";

const message = (position: number) => ({ position }) as ArchivedMessage;

/** Three batches, and a log of what happens to them. */
function purging({ goOn = Number.POSITIVE_INFINITY, fails = false } = {}) {
  const steps: string[] = [];
  let asked = 0;
  let found = 0;
  const { removeAll } = purgeBatches({
    // No time passes, so it never rests.
    runtime: runtimeWith({ monotonic: () => 0 }),
    mayGoOn: async () => asked++ < goOn,
    archive: async (messages) => {
      steps.push(`archive ${messages.map(({ position }) => position)}`);
      if (fails) throw new Error("the archive is away");
    },
  });
  const next = async (): Promise<PurgeBatch | undefined> => {
    const batch = ++found;
    steps.push(`find ${batch}`);
    if (batch > 3) return undefined;
    const remove = async () => {
      steps.push(`remove ${batch}`);
      return 2;
    };
    return { messages: [message(2 * batch), message(2 * batch - 1)], remove };
  };
  return { steps, removed: removeAll(next) };
}

describe("purging in batches", () => {
  it("archives each batch, in order of position, before it is removed", async () => {
    const { steps, removed } = purging();
    expect(await removed).toBe(6);
    const each = (batch: number) => [`find ${batch}`, `archive ${2 * batch - 1},${2 * batch}`, `remove ${batch}`];
    expect(steps).toEqual([...each(1), ...each(2), ...each(3), "find 4"]);
  });

  it("ends before a batch that it may not go on with", async () => {
    const { steps, removed } = purging({ goOn: 1 });
    expect(await removed).toBe(2);
    expect(steps).toEqual(["find 1", "archive 1,2", "remove 1"]);
  });

  it("removes nothing that the archive did not take", async () => {
    const { steps, removed } = purging({ fails: true });
    await expect(removed).rejects.toThrow("the archive is away");
    expect(steps).toEqual(["find 1", "archive 1,2"]);
  });
});
