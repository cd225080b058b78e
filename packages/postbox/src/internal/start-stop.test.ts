import { gate } from "@postbox/testkit";
import { expect, it } from "vitest";
import { startStop } from "./start-stop.js";

/** Something that runs until it is stopped, and then as long as the test says. */
function world(ending: () => Promise<void> = async () => {}) {
  const runs: { readonly argument: string; readonly signal: AbortSignal }[] = [];
  const background = startStop("the thing", async (signal, argument: string) => {
    runs.push({ argument, signal });
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
  const background = startStop("the thing", (signal, fails: boolean) =>
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
