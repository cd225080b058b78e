import type { Failpoint, Runtime } from "postbox/store";
import type { Chance } from "./chance.js";
import type { World } from "./world.js";

/** Where a process dies: at this hit of this failpoint. */
export interface Deathbed {
  readonly failpoint: Failpoint;
  readonly hit: number;
}

/**
 * A process in the simulation: what runs in it goes on only through `later`, so that a dead one does nothing any more,
 * and a paused one does it afterwards. What it had sent before is on its way all the same.
 */
export class SimulatedProcess {
  readonly name: string;
  readonly runtime: Runtime;
  readonly #world: World;
  readonly #deathbed: Deathbed | undefined;
  readonly #mourners: (() => void)[] = [];
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

  /** Runs `run` in `ms`, if it lives then, and not before its pause is over. */
  later(ms: number, run: () => void): () => void {
    let cancel = this.#world.at(ms, () => {
      if (!this.#alive) return;
      const restMs = this.#pausedUntil - this.#world.now;
      if (restMs > 0) cancel = this.#world.at(restMs, () => this.#alive && run());
      else run();
    });
    return () => cancel();
  }

  /** How many timers the library has set here that have neither come nor been cancelled. */
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

  /** Nothing happens in it for so long, and then all of it. */
  pause(ms: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#world.now + ms);
  }

  /** The clock of its host is set. */
  setClock(ms: number): void {
    this.#clockMs += Math.round(ms);
  }

  /** Runs `mourner` when it dies: whoever held something for it. */
  onDeath(mourner: () => void): void {
    this.#mourners.push(mourner);
  }

  die(): void {
    if (!this.#alive) return;
    this.#alive = false;
    for (const mourner of this.#mourners) mourner();
  }
}

/** What a dead process waits for. */
export function never<T = void>(): Promise<T> {
  return new Promise(() => {});
}
