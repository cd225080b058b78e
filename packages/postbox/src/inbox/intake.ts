import { PermanentError, PostboxError } from "../errors.js";
import { sleep } from "../internal/runtime.js";
import { createWake, type Wake } from "../internal/wake.js";
import type { Delivery } from "../transport.js";
import { Arrived, type ArrivedOptions } from "./arrived.js";

export interface IntakeOptions extends ArrivedOptions {
  /** Whether nothing may be stored before what arrived earlier. */
  readonly inOrder: boolean;
  /** Called when something was stored. */
  kept(): void;
}

/** Stores deliveries in the box of their consumer, in order of arrival, and then acknowledges them. */
export class Intake {
  readonly #options: IntakeOptions;
  readonly #arrived: Arrived;
  readonly #wake: Wake;
  readonly #queue: Delivery[] = [];
  readonly #waiters: (() => void)[] = [];
  #ended = false;

  constructor(options: IntakeOptions) {
    this.#options = options;
    this.#arrived = new Arrived(options);
    this.#wake = createWake(options.runtime);
  }

  /** Resolves when there is room for another delivery. */
  async take(delivery: Delivery): Promise<void> {
    if (this.#ended) return this.#arrived.release([delivery]);
    this.#queue.push(delivery);
    this.#wake.wake();
    if (this.#queue.length >= 2 * this.#options.batchSize) {
      await new Promise<void>((resolve) => this.#waiters.push(resolve));
    }
  }

  /**
   * Runs until `end`, and then gives back what is not stored. From `stop` on, it gives back what cannot be stored at
   * once. It gives up on calls to the store at `giveUp`, so that a stop does not wait for a store that does not answer.
   */
  async run(stop: AbortSignal, end: AbortSignal, giveUp: AbortSignal): Promise<void> {
    const { batchSize, backoff, runtime } = this.#options;
    for (let failures = 0; !end.aborted; ) {
      if (this.#queue.length === 0) {
        await this.#wake.wait(end);
        continue;
      }
      // After a failure one at a time, so that a message which can never be stored is parked, and the others are
      // stored.
      const batch = this.#queue.splice(0, failures === 0 ? batchSize : 1);
      this.#makeRoom();
      const failed = await this.#store(batch, giveUp);
      if (failed === undefined) failures = 0;
      else if (failed.again === "at-once") failures++;
      else if (failed.again === "later") {
        await sleep(runtime, backoff(++failures, runtime.random), stop);
        if (stop.aborted) await this.#giveBack();
      }
    }
    this.#ended = true;
    await this.#giveBack();
  }

  /**
   * Stores a batch and settles it. If that fails, the batch returns to the queue, to be stored `at-once` or `later`; or
   * `over`: its only delivery was settled in another way.
   */
  async #store(
    batch: readonly Delivery[],
    giveUp: AbortSignal,
  ): Promise<{ readonly again: "at-once" | "later" | "over" } | undefined> {
    const { brokerParks, consumer, inOrder, telemetry } = this.#options;
    try {
      await this.#keep(batch, giveUp);
      return undefined;
    } catch (error) {
      const alone = batch.length === 1 ? (batch[0] as Delivery) : undefined;
      if (alone === undefined && error instanceof PermanentError) {
        // One of them is the cause, and no pause would help.
        this.#queue.unshift(...batch);
        return { again: "at-once" };
      }
      if (alone !== undefined && error instanceof PermanentError && brokerParks) {
        await this.#arrived.park(alone, error, giveUp);
        return { again: "over" };
      }
      if (alone !== undefined && isBusy(error) && !inOrder) {
        await this.#arrived.later(alone, error);
        return { again: "over" };
      }
      telemetry({ name: "router.failed", consumer, error: PostboxError.from(error, "store-failed") });
      // While the store does not answer, they wait here, and the broker waits too.
      this.#queue.unshift(...batch);
      return { again: "later" };
    }
  }

  /** Stores all of these and settles each, or throws and settles none. */
  async #keep(batch: readonly Delivery[], giveUp: AbortSignal): Promise<void> {
    const { inbox, remember, runtime, kept } = this.#options;
    const sorted = this.#arrived.sort(batch);
    const arrivals = sorted.flatMap(({ arrival }) => arrival ?? []);
    const remembered = arrivals.length === 0 ? [] : await inbox.keep(arrivals, remember, giveUp);
    if (runtime.failpoint) await runtime.failpoint("inbox.kept");
    if (remembered.includes("new")) kept();
    let next = 0;
    const found = sorted.map(({ arrival }) => (arrival === undefined ? undefined : remembered[next++]) ?? "new");
    await Promise.all(sorted.map(({ settle }, index) => settle(found[index] ?? "new", giveUp)));
  }

  #makeRoom(): void {
    for (const resolve of this.#waiters.splice(0)) resolve();
  }

  /** The receiver ends once its pending delivery was taken. */
  async #giveBack(): Promise<void> {
    const left = this.#queue.splice(0);
    this.#makeRoom();
    await this.#arrived.release(left);
  }
}

function isBusy(error: unknown): error is PostboxError {
  return error instanceof PostboxError && error.code === "inbox-busy";
}
