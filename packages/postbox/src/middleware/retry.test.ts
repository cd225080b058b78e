import { manualRuntime } from "@postbox/testkit";
import { type BaseContext, PermanentError, type RetryOptions, retry } from "postbox";
import { describe, expect, it } from "vitest";

/** Runs a failing handler until advancing the time changes nothing. Records the time of each try and the outcome. */
async function tries(options: RetryOptions, fails: (attempt: number, stop: () => void) => unknown) {
  const runtime = manualRuntime();
  const controller = new AbortController();
  const seen = { at: [] as number[], outcome: "waits" as unknown, controller, runtime };
  const context = { runtime, signal: controller.signal } as unknown as BaseContext;
  const next = async () => {
    const error = fails(seen.at.push(runtime.monotonic()), () => controller.abort());
    if (error !== undefined) throw error;
    return [];
  };
  retry(options)
    .run(context, next)
    .then(
      () => {
        seen.outcome = "succeeded";
      },
      (error) => {
        seen.outcome = error;
      },
    );
  await runtime.advance(1_000_000);
  return seen;
}

const error = new Error("again");

describe("retry", () => {
  it("tries as often as it may, after the delays of its backoff, and lets the last failure out", async () => {
    const { at, outcome } = await tries({ maxAttempts: 4, backoff: (attempt) => attempt * 10 }, () => error);
    expect(at).toEqual([0, 10, 30, 60]);
    expect(outcome).toBe(error);
  });

  it("tries three times unless told otherwise, and no longer than it must", async () => {
    expect((await tries({}, () => error)).at).toHaveLength(3);
    const { at, outcome } = await tries({}, (attempt) => (attempt < 2 ? error : undefined));
    expect(at).toHaveLength(2);
    expect(outcome).toBe("succeeded");
  });

  it.each<[string, RetryOptions, unknown, number]>([
    ["not what can never succeed", {}, new PermanentError("never"), 1],
    ["not what `when` excludes", { when: (thrown) => !(thrown instanceof RangeError) }, new RangeError("excluded"), 1],
    ["what `when` includes, even then", { when: () => true }, new PermanentError("never"), 3],
  ])("repeats %s", async (_, options, thrown, times) => {
    const { at, outcome } = await tries(options, () => thrown);
    expect(at).toHaveLength(times);
    expect(outcome).toBe(thrown);
  });

  it("gives up at once when it is told to while something runs, and while it waits", async () => {
    const asked: number[] = [];
    const backoff = (attempt: number) => {
      asked.push(attempt);
      return 10;
    };
    const running = await tries({ maxAttempts: 9, backoff }, (attempt, stop) => {
      if (attempt === 2) stop();
      return error;
    });
    expect([running.at, running.outcome]).toEqual([[0, 10], error]);
    expect(asked).toEqual([1]);

    const waiting = await tries({ maxAttempts: 9, backoff: () => 2_000_000 }, () => error);
    expect(waiting.outcome).toBe("waits");
    waiting.controller.abort();
    await waiting.runtime.advance(0);
    expect([waiting.at, waiting.outcome]).toEqual([[0], error]);
  });
});
