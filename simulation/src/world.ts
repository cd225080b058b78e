import { nextTick } from "node:process";
import type { Runtime } from "postbox/store";
import type { Chance } from "./chance.js";

/** A function that is due at a time. */
interface Task {
  readonly at: number;
  /** Random: decides the order of tasks that are due at the same moment. */
  readonly turn: number;
  run: (() => void) | undefined;
}

/**
 * The time of a simulation, and the order of everything in it. It never waits for the clock of the machine: time jumps
 * from one task to the next, and between two tasks every promise that can continue does.
 */
export class World {
  readonly chance: Chance;
  /** The runtime of the network and the servers, which no crash of a process stops. */
  readonly runtime: Runtime;
  #now = 0;
  #clock = 0;
  /** A binary heap: the next task is the first. */
  readonly #tasks: Task[] = [];

  constructor(chance: Chance) {
    this.chance = chance;
    this.runtime = this.runtimeFor(chance.fork(), (task, ms) => this.at(ms, task));
  }

  get now(): number {
    return this.#now;
  }

  /** Executes `run` after `ms`. Returns a function that cancels it. */
  at(ms: number, run: () => void): () => void {
    const task: Task = { at: this.#now + Math.max(0, ms), turn: this.chance.next(), run };
    this.#push(task);
    return () => {
      task.run = undefined;
    };
  }

  /** Returns the clock, timers and random numbers of a process. */
  runtimeFor(chance: Chance, schedule: Runtime["schedule"]): Runtime {
    const start = Date.UTC(2026, 0, 1);
    return {
      now: () => start + Math.floor(this.#now),
      // Advances a little at each call, so that code which reads the clock twice cannot rely on equal values.
      monotonic: () => {
        this.#clock = Math.max(this.#clock + 0.02, this.#now);
        return this.#clock;
      },
      random: () => chance.next(),
      randomBytes(count) {
        const bytes = new Uint8Array(count);
        for (let index = 0; index < count; index++) bytes[index] = chance.next() * 256;
        return bytes;
      },
      schedule,
    };
  }

  /**
   * Advances time until `isOver` is true, which is called every `stepMs`. Returns false if `limitMs` have passed first.
   */
  async run(isOver: () => boolean, stepMs: number, limitMs: number): Promise<boolean> {
    const end = this.#now + limitMs;
    let askAt = this.#now;
    for (;;) {
      if (this.#now >= askAt) {
        if (isOver()) return true;
        askAt = this.#now + stepMs;
      }
      const next = this.#next();
      if (next === undefined || next.at > end) {
        this.#now = end;
        return isOver();
      }
      if (next.at > askAt) {
        this.#now = askAt;
        continue;
      }
      this.#pop();
      this.#now = next.at;
      next.run?.();
      await everythingElse();
    }
  }

  /** The number of tasks that are not yet due. */
  get pending(): number {
    return this.#tasks.filter(({ run }) => run !== undefined).length;
  }

  #next(): Task | undefined {
    while (this.#tasks[0] !== undefined && this.#tasks[0].run === undefined) this.#pop();
    return this.#tasks[0];
  }

  #push(task: Task): void {
    const tasks = this.#tasks;
    let index = tasks.push(task) - 1;
    while (index > 0) {
      const above = (index - 1) >> 1;
      if (!isBefore(task, tasks[above] as Task)) break;
      tasks[index] = tasks[above] as Task;
      index = above;
    }
    tasks[index] = task;
  }

  #pop(): void {
    const tasks = this.#tasks;
    const last = tasks.pop() as Task;
    if (tasks.length === 0) return;
    let index = 0;
    for (;;) {
      let below = 2 * index + 1;
      if (below >= tasks.length) break;
      if (below + 1 < tasks.length && isBefore(tasks[below + 1] as Task, tasks[below] as Task)) below++;
      if (!isBefore(tasks[below] as Task, last)) break;
      tasks[index] = tasks[below] as Task;
      index = below;
    }
    tasks[index] = last;
  }
}

/**
 * Resolves after every promise that can continue has done so. A turn of the event loop would do the same, but takes
 * longer than everything else together.
 */
function everythingElse(): Promise<void> {
  return new Promise((resolve) => queueMicrotask(() => nextTick(resolve)));
}

function isBefore(a: Task, b: Task): boolean {
  return a.at < b.at || (a.at === b.at && a.turn < b.turn);
}
