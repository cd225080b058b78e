import type { PostboxError } from "../../errors.js";
import type { Outcome, Sender } from "../../transport.js";
import type { Produce } from "./producer.js";

/** The messages of one call of `send`, and who waits for their outcomes. */
export class SentBatch {
  /** Resolves when each message has its outcome; rejects if the brokers cannot be reached. */
  readonly done: Promise<void>;
  /** The records that were handed to the producer. */
  readonly produced = new Set<Produce>();
  readonly #settled: Parameters<Sender["send"]>[1];
  #unreported: number;
  #ended = false;
  #resolve = () => {};
  #reject = (_: unknown) => {};

  constructor(count: number, settled: Parameters<Sender["send"]>[1]) {
    this.#unreported = count;
    this.#settled = settled;
    this.done = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // Its caller may have given up by then.
    this.done.catch(() => {});
  }

  get unreported(): number {
    return this.#unreported;
  }

  /** Whether nobody waits any more. */
  get ended(): boolean {
    return this.#ended;
  }

  settle(index: number, outcome: Outcome): void {
    if (this.#ended) return;
    this.#settled(index, outcome);
    if (--this.#unreported === 0) this.#resolve();
  }

  fail(error: PostboxError): void {
    this.#reject(error);
  }

  /** Nothing is reported from now on. */
  end(): void {
    this.#ended = true;
  }
}
