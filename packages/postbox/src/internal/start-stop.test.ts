import { gate } from "@postbox/testkit";
import { expect, it } from "vitest";
import { startStop } from "./start-stop.js";

/** A background run that ends when it is stopped and `ending` resolves. */
function world(ending: () => Promise<void> = async () => {}) {
  const runs: { readonly argument: string; readonly signal: AbortSignal }[] = [];
  const background = startStop("the thing", async (signal, ready, argument: string) => {
    runs.push({ argument, signal });
    ready();
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
    await ending();
  });
  return { ...background, runs };
}

it("starts what it is given, and stop waits for its end", async () => {
  const end = gate();
  const { start, stop, runs } = world(() => end.opened);
  start("a");
  expect(runs).toMatchObject([{ argument: "a", signal: { aborted: false } }]);
  let over = false;
  const stopped = Promise.all([stop(), stop()]).then(() => {
    over = true;
  });
  expect(runs[0]?.signal.aborted).toBe(true);
  await new Promise(setImmediate);
  expect(over).toBe(false);
  expect(() => start("b")).toThrow("[already-started] the thing runs already; await stop() before starting it again");
  end.open();
  await stopped;
  start("b");
  await stop();
  expect(runs.map(({ argument }) => argument)).toEqual(["a", "b"]);
});

it("stops nothing when nothing runs", async () => {
  const { stop } = world();
  await stop();
});

it("tells a failure to the first stop after it, and may then start again", async () => {
  let failures = 1;
  const { start, stop } = world(async () => {
    if (failures-- > 0) throw new Error("failed");
  });
  start("a");
  await expect(stop()).rejects.toThrow("failed");
  await stop();
  start("b");
  await stop();
});

it("a stop that ends late does not forget what was started after it", async () => {
  const background = startStop("the thing", (signal, _ready, fails: boolean) =>
    fails
      ? Promise.reject(new Error("failed at once"))
      : new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve())),
  );
  background.start(true);
  await new Promise(setImmediate);
  const first = background.stop();
  background.start(false);
  await expect(first).rejects.toThrow("failed at once");
  expect(() => background.start(false)).toThrow("already-started");
  await background.stop();
});

it("start resolves when it runs, and rejects if it fails before that", async () => {
  const [running, failing] = [gate(), gate()];
  const background = startStop("the thing", async (signal, ready, fails: boolean) => {
    if (fails) {
      await failing.opened;
      throw new Error("no retry can mend this");
    }
    await running.opened;
    ready();
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
  });
  let runs = false;
  const started = background.start(false).then((answer) => {
    runs = answer;
  });
  await new Promise(setImmediate);
  expect(runs).toBe(false);
  running.open();
  await started;
  expect(runs).toBe(true);
  await background.stop();

  const failed = background.start(true);
  failing.open();
  await expect(failed).rejects.toThrow("no retry can mend this");
  await expect(background.stop()).rejects.toThrow("no retry can mend this");
});

it("an unawaited start that fails ends no process; a start that is stopped first resolves to false", async () => {
  const background = startStop("the thing", async (signal, _ready, fails: boolean) => {
    if (fails) throw new Error("failed");
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
  });
  // An unhandled rejection would fail this test.
  void background.start(true);
  await new Promise(setImmediate);
  const started = background.start(false);
  await background.stop();
  expect(await started).toBe(false);
});
