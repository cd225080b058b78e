import type { Chance } from "./chance.js";
import { never, type SimulatedProcess } from "./process.js";
import type { World } from "./world.js";

/** How a network, and what is at its end, behaves. Probabilities are per call. */
export interface Weather {
  /** The mean of one way. */
  readonly travelMs: number;
  /** It takes longer than anybody waits. */
  readonly slow: number;
  /** It fails, and nothing has happened. */
  readonly fails: number;
  /** It happens, but the answer is lost. */
  readonly answerLost: number;
  /** Nobody answers until the connection is given up; whether it happens is open. */
  readonly hangs: number;
}

/** The connection of a process to a database or a broker. */
export class Link {
  readonly world: World;
  readonly process: SimulatedProcess;
  readonly #chance: Chance;
  readonly #weather: () => Weather;
  #cutUntil = 0;
  #halfOpenUntil = 0;

  constructor(world: World, process: SimulatedProcess, chance: Chance, weather: () => Weather) {
    this.world = world;
    this.process = process;
    this.#chance = chance;
    this.#weather = weather;
  }

  /** Nothing gets through for so long. */
  cut(ms: number): void {
    this.#cutUntil = Math.max(this.#cutUntil, this.world.now + ms);
  }

  get isCut(): boolean {
    return this.world.now < this.#cutUntil;
  }

  /** For so long nothing gets through, and nobody is told. */
  swallow(ms: number): void {
    this.#halfOpenUntil = Math.max(this.#halfOpenUntil, this.world.now + ms);
  }

  get isHalfOpen(): boolean {
    return this.world.now < this.#halfOpenUntil;
  }

  /** How long one way takes now. */
  travel(): number {
    const { travelMs, slow } = this.#weather();
    if (this.#chance.is(slow)) return this.#chance.between(100, 4_000);
    return -Math.log(1 - this.#chance.next()) * travelMs;
  }

  /** Brings `run` to the other side, whatever becomes of the process meanwhile. */
  there(run: () => void): void {
    this.world.at(this.travel(), run);
  }

  /** Brings `run` back, if the process lives to hear of it. */
  back(run: () => void): void {
    this.process.later(this.travel(), run);
  }

  /** Asks the other side to `execute`, which happens there in one step, and brings its answer. */
  call<R>(execute: () => Promise<R>): Promise<R> {
    if (!this.process.alive) return never();
    const { fails, hangs, answerLost } = this.#weather();
    const [failing, hanging, losing] = [this.#chance.is(fails), this.#chance.is(hangs), this.#chance.is(answerLost)];
    return new Promise((resolve, reject) => {
      const fail = (text: string) => this.back(() => reject(new Error(text)));
      if (this.isCut) {
        if (this.#chance.is(0.5)) fail("connection refused");
        else this.process.later(this.#cutUntil - this.world.now, () => reject(new Error("connection timed out")));
        return;
      }
      if (hanging)
        this.process.later(this.#chance.between(5_000, 15_000), () => reject(new Error("connection timed out")));
      this.there(() => {
        if (failing) return fail("connection reset before it happened");
        if (hanging && this.#chance.is(0.5)) return;
        execute().then(
          (value) => {
            if (hanging) return;
            if (losing || this.isCut) fail("connection reset before the answer");
            else this.back(() => resolve(value));
          },
          (error: unknown) => this.back(() => reject(error)),
        );
      });
    });
  }
}
