import type { Failpoint, Runtime } from "postbox/store";
import type { Chance } from "./chance.js";
import type { World } from "./world.js";

/** The failpoint, and which hit of it crashes the process. */
export interface Deathbed {
  readonly failpoint: Failpoint;
  readonly hit: number;
}

/**
 * A simulated process. Its code runs only through `later`, so that a crashed process does nothing more, and a paused
 * one continues afterwards. What it sent before a crash still arrives.
 */
export class SimulatedProcess {
  readonly name: string;
  readonly runtime: Runtime;
  readonly #world: World;
  readonly #deathbed: Deathbed | undefined;
  readonly #deathListeners: (() => void)[] = [];
  readonly #hits = new Map<Failpoint, number>();
  #alive = true;
  #pausedUntil = 0;
  #clockMs = 0;
  readonly #timers = new Set<object>();

  constructor(
    world: World,
    name: string,
    chance: Chance,
    reached: (failpoint: Failpoint) => void,
    deathbed?: Deathbed,
  ) {
    this.#world = world;
    this.name = name;
    this.#deathbed = deathbed;
    const runtime = world.runtimeFor(chance, (task, ms) => this.#schedule(task, ms));
    this.runtime = {
      ...runtime,
      now: () => runtime.now() + this.#clockMs,
      failpoint: (failpoint) => {
        reached(failpoint);
        const hit = (this.#hits.get(failpoint) ?? 0) + 1;
        this.#hits.set(failpoint, hit);
        if (failpoint === this.#deathbed?.failpoint && hit === this.#deathbed.hit) this.die();
        return this.#alive ? undefined : never();
      },
    };
  }

  get alive(): boolean {
    return this.#alive;
  }

  /** Executes `run` after `ms`, if the process is alive then, and not before a pause has ended. */
  later(ms: number, run: () => void): () => void {
    let cancel = this.#world.at(ms, () => {
      if (!this.#alive) return;
      const restMs = this.#pausedUntil - this.#world.now;
      if (restMs > 0) cancel = this.#world.at(restMs, () => this.#alive && run());
      else run();
    });
    return () => cancel();
  }

  /** The timers of the library that have neither fired nor been cancelled. */
  get timers(): number {
    return this.#timers.size;
  }

  #schedule(task: () => void, ms: number): () => void {
    const timer = {};
    this.#timers.add(timer);
    const cancel = this.later(ms, () => {
      this.#timers.delete(timer);
      task();
    });
    return () => {
      this.#timers.delete(timer);
      cancel();
    };
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.later(ms, resolve));
  }

  /** Pauses the process for this time. Everything that was due executes afterwards. */
  pause(ms: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#world.now + ms);
  }

  /** Sets the clock of the host. */
  setClock(ms: number): void {
    this.#clockMs += Math.round(ms);
  }

  /** Executes `listener` when the process crashes, to release what it held. */
  onDeath(listener: () => void): void {
    this.#deathListeners.push(listener);
  }

  die(): void {
    if (!this.#alive) return;
    this.#alive = false;
    for (const listener of this.#deathListeners) listener();
  }
}

/** A promise that never settles: what a crashed process waits for. */
export function never<T = void>(): Promise<T> {
  return new Promise(() => {});
}
