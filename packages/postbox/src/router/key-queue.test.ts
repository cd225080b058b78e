import { describe, expect, it } from "vitest";
import { createKeyQueue } from "./key-queue.js";

/**
 * A queue whose tasks run until the test ends them by name. A name is an optional key, a number, and `@` with the
 * stream, as in `a1@s`. A task whose name ends with `!` comes from the box.
 */
function world(concurrency: number, maxBuffered = 100) {
  interface Named {
    readonly name: string;
    readonly key: string | undefined;
    readonly stream: string | undefined;
    readonly isKept: boolean;
    run(): Promise<void>;
  }
  const queue = createKeyQueue<Named>(concurrency, maxBuffered);
  const started: string[] = [];
  const ends = new Map<string, () => void>();
  return {
    queue,
    started,
    push: (name: string) => {
      const run = () => {
        started.push(name);
        return new Promise<void>((resolve) => ends.set(name, resolve));
      };
      const [key, stream] = [/^[a-z]+/.exec(name)?.[0], name.split("@")[1]];
      return watched(queue.push({ name, key, stream, isKept: name.endsWith("!"), run }));
    },
    async end(...names: string[]) {
      for (const name of names) ends.get(name)?.();
      await new Promise(setImmediate);
    },
  };
}

/** Tracks whether a promise has resolved. */
function watched(promise: Promise<void>) {
  const state = { done: false };
  void promise.then(() => {
    state.done = true;
  });
  return state;
}

const soon = () => new Promise(setImmediate);

describe("a key queue", () => {
  it("runs as many at once as it may, and the next when one ends", async () => {
    const { push, started, end } = world(2);
    for (const name of ["1", "2", "3", "4"]) push(name);
    expect(started).toEqual(["1", "2"]);
    await end("2");
    expect(started).toEqual(["1", "2", "3"]);
    await end("1", "3");
    expect(started).toEqual(["1", "2", "3", "4"]);
  });

  it("runs those of one key one after the other, and lets others pass", async () => {
    const { push, started, end } = world(3);
    for (const name of ["a1", "a2", "b1", "a3", "1"]) push(name);
    expect(started).toEqual(["a1", "b1", "1"]);
    await end("a1");
    expect(started.slice(3)).toEqual(["a2"]);
    await end("a2");
    expect(started.slice(3)).toEqual(["a2", "a3"]);
    await end("a3");
    push("a4");
    expect(started.slice(3)).toEqual(["a2", "a3", "a4"]);
  });

  it("lets tasks from the box and from the broker take turns, in order of arrival per key", async () => {
    const { push, started, end } = world(1);
    for (const name of ["1", "2", "3", "4", "5", "a6", "7!", "8!", "a9!"]) push(name);
    for (let ended = 0; ended < started.length; ended++) await end(started[ended] as string);
    expect(started).toEqual(["1", "7!", "2", "8!", "3", "4", "5", "a6", "a9!"]);
  });

  it("removes tasks from the box, too", async () => {
    const { push, queue, started } = world(1);
    for (const name of ["1", "2!", "3"]) push(name);
    expect(queue.take().map(({ name }) => name)).toEqual(["3", "2!"]);
    expect(started).toEqual(["1"]);
  });

  it("has room for so many that wait, and tells when there is more", async () => {
    const { push, end } = world(1, 2);
    const [first, second, third, fourth] = ["1", "2", "3", "4"].map(push);
    await soon();
    expect([first, second, third, fourth]).toMatchObject([
      { done: true },
      { done: true },
      { done: false },
      { done: false },
    ]);
    await end("1");
    expect([third, fourth]).toMatchObject([{ done: false }, { done: false }]);
    await end("2");
    expect([third, fourth]).toMatchObject([{ done: true }, { done: true }]);
  });

  it("counts those that wait for their key among them", async () => {
    const { push, end } = world(2, 1);
    push("a1");
    const second = push("a2");
    await soon();
    expect(second.done).toBe(false);
    await end("a1");
    expect(second.done).toBe(true);
  });

  it("takes out what has not started, in order, and lets go whoever waits for room", async () => {
    const { push, queue, started, end } = world(1, 2);
    const pushed = ["a1", "a2", "1", "a3", "b1"].map(push);
    expect(queue.take().map(({ name }) => name)).toEqual(["1", "b1", "a2", "a3"]);
    await soon();
    expect(pushed.every(({ done }) => done)).toBe(true);
    await end("a1");
    expect(started).toEqual(["a1"]);
    expect(queue.take()).toEqual([]);
    const again = ["1", "2"].map(push);
    await soon();
    expect(again).toMatchObject([{ done: true }, { done: true }]);
    expect(started).toEqual(["a1", "1"]);
  });

  it("takes out only what is chosen, and lets those go that waited behind it", async () => {
    const { push, queue, started, end } = world(2);
    for (const name of ["a1", "b1", "c1", "c2", "a2", "c3"]) push(name);
    expect(queue.take(({ name }) => name === "c1" || name === "a2").map(({ name }) => name)).toEqual(["c1", "a2"]);
    await end("a1", "b1");
    expect(started).toEqual(["a1", "b1", "c2"]);
    await end("c2");
    expect(started).toEqual(["a1", "b1", "c2", "c3"]);
    push("a3");
    expect(started.at(-1)).toBe("a3");
  });

  it("has room for so many of each stream", async () => {
    const { push, end } = world(1, 2);
    const [first, second, third, other] = ["1@x", "2@x", "3@x", "4@y"].map(push);
    await soon();
    expect([first, second, third, other]).toMatchObject([
      { done: true },
      { done: true },
      { done: false },
      { done: true },
    ]);
    await end("1@x");
    expect(third?.done).toBe(true);
  });

  it("is idle when nothing runs", async () => {
    const { push, queue, end } = world(2);
    const before = watched(queue.idle());
    push("1");
    push("2");
    const [one, other] = [watched(queue.idle()), watched(queue.idle())];
    await end("1");
    expect([before, one, other]).toMatchObject([{ done: true }, { done: false }, { done: false }]);
    await end("2");
    expect([one, other]).toMatchObject([{ done: true }, { done: true }]);
  });
});
