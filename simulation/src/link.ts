import type { Chance } from "./chance.js";
import { never, type SimulatedProcess } from "./process.js";
import type { World } from "./world.js";

/** How a network and the server at its end behave. Probabilities are per call. */
export interface Weather {
  /** The mean time of one direction. */
  readonly travelMs: number;
  /** The call takes longer than any timeout. */
  readonly slow: number;
  /** The call fails and changes nothing. */
  readonly fails: number;
  /** The call succeeds, but its answer is lost. */
  readonly answerLost: number;
  /** No answer arrives until the connection is given up; the call may or may not take effect. */
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

  /** Every call fails for this time. */
  cut(ms: number): void {
    this.#cutUntil = Math.max(this.#cutUntil, this.world.now + ms);
  }

  get isCut(): boolean {
    return this.world.now < this.#cutUntil;
  }

  /** For this time nothing arrives, and neither side gets an error. */
  swallow(ms: number): void {
    this.#halfOpenUntil = Math.max(this.#halfOpenUntil, this.world.now + ms);
  }

  get isHalfOpen(): boolean {
    return this.world.now < this.#halfOpenUntil;
  }

  /** Draws how long one direction takes now. */
  travel(): number {
    const { travelMs, slow } = this.#weather();
    if (this.#chance.is(slow)) return this.#chance.between(100, 4_000);
    return -Math.log(1 - this.#chance.next()) * travelMs;
  }

  /** Executes `run` on the other side, even if the process crashes meanwhile. */
  there(run: () => void): void {
    this.world.at(this.travel(), run);
  }

  /** Executes `run` in the process, if it is still alive. */
  back(run: () => void): void {
    this.process.later(this.travel(), run);
  }

  /** Executes `execute` on the other side in one step, and returns its answer. */
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
