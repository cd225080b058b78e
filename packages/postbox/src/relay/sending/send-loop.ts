import { PostboxError } from "../../errors.js";
import { createWake, type Wake } from "../../internal/wake.js";
import type { Row } from "../../store.js";
import type { DrainContext } from "../context.js";
import { expiry, unreadable } from "../deciding/decide.js";
import { countCrashes } from "../isolation/count-crashes.js";
import { type Doubt, hopeless } from "../isolation/suspicion.js";
import type { Window } from "../ordering/window.js";
import type { Ownership } from "../owning/ownership.js";
import type { Settler } from "../settling/settler.js";
import type { Dispatched, SendOutcome, Target } from "../target.js";
import { type Breaker, createBreaker } from "./breaker.js";
import type { Outcomes } from "./outcomes.js";

export interface SendLoopOptions extends DrainContext {
  readonly target: Target;
  readonly ownership: Ownership;
  readonly window: Window;
  readonly settler: Settler;
  readonly outcomes: Outcomes;
  readonly doubt: Doubt;
  /** Whether the next row is sent only after the last one has landed. */
  readonly oneByOne: boolean;
  /** Rows were sent: there may be room for others. */
  roomLeft(): void;
}

/**
 * Gives rows from the window to the target, while the lease is valid and within the limits of what may be in flight.
 */
export class SendLoop {
  readonly #options: SendLoopOptions;
  readonly #wake: Wake;
  readonly #breaker: Breaker;
  readonly #sending = new Set<Promise<void>>();

  constructor(options: SendLoopOptions) {
    this.#options = options;
    this.#wake = createWake(options.runtime);
    this.#breaker = createBreaker(options);
  }

  /**
   * There may be rows to send, or room for more. If rows are sent one by one, this has no effect before the last one
   * has landed.
   */
  wake(): void {
    if (!(this.#options.oneByOne && this.#sending.size > 0)) this.#wake.wake();
  }

  /** Runs until the signal is aborted, then waits for what is in flight. */
  async run(signal: AbortSignal): Promise<void> {
    const { target, roomLeft } = this.#options;
    while (!signal.aborted) {
      // Read before `allows`: if a delay ended in between, `waitMs` would be undefined after `allows` said no, and the
      // loop would never wake.
      const waitMs = this.#breaker.waitMs();
      while (this.#maySend) {
        const batch = this.#take();
        if (batch.length === 0) break;
        const worth = this.#worth(batch);
        if (worth.length > 0) this.#send(worth);
      }
      roomLeft();
      await this.#wake.wait(signal, waitMs);
    }
    while (this.#sending.size > 0) await Promise.race(this.#sending);
    await target.idle?.();
  }

  get #maySend(): boolean {
    const { ownership, window, settler, oneByOne, maxInFlight, maxInFlightBytes } = this.#options;
    return (
      ownership.trusted() &&
      !ownership.paused() &&
      this.#breaker.allows(this.#sending.size) &&
      !(oneByOne && this.#sending.size > 0) &&
      window.inFlight < maxInFlight &&
      // Also bounds the rows that are sent but not settled: after a crash, they would be sent again.
      settler.size < 2 * maxInFlight &&
      window.inFlightBytes < maxInFlightBytes
    );
  }

  #take(): readonly Row[] {
    const { window, target, settler, doubt, oneByOne, batchSize, maxInFlight, maxInFlightBytes } = this.#options;
    const isWell = doubt.none;
    const most = isWell && !oneByOne ? Math.min(batchSize, target.most(), maxInFlight - window.inFlight) : 1;
    return window.take(most, maxInFlightBytes - window.inFlightBytes, isWell, settler.size === 0);
  }

  /** The rows of a batch that the target gets. */
  #worth(batch: readonly Row[]): readonly Row[] {
    const { target, outcomes } = this.#options;
    let behind: Map<string | undefined, SendOutcome> | undefined;
    return batch.filter((row) => {
      if (this.#endsHere(row)) return false;
      const { key } = row.message;
      // Later rows of its key wait with it, even if they go to another destination.
      const refused = (key === undefined ? undefined : behind?.get(key)) ?? target.refuses?.(row);
      if (refused === undefined) return true;
      behind ??= new Map();
      behind.set(key, refused);
      outcomes.report(row, refused);
      return false;
    });
  }

  /** Whether a row is poisoned, unreadable or expired, so that it is not sent. Also reports its outcome then. */
  #endsHere(row: Row): boolean {
    const { outcomes, runtime, onExpired } = this.#options;
    const end = hopeless(row) ?? unreadable(row) ?? (onExpired === "send" ? undefined : expiry(row, runtime));
    if (end !== undefined) outcomes.report(row, end);
    return end !== undefined;
  }

  #send(batch: readonly Row[]): void {
    const { outcomes, failed } = this.#options;
    const begun = this.#breaker.begin();
    const done = this.#attempt(batch).then(({ undecided, down, died = false }) => {
      this.#sending.delete(done);
      outcomes.unknown(undecided, died);
      if (down === undefined) this.#breaker.close();
      else {
        const retryInMs = this.#breaker.open(down, begun);
        if (retryInMs !== undefined) failed(down, retryInMs);
      }
      this.wake();
    });
    this.#sending.add(done);
  }

  async #attempt(batch: readonly Row[]): Promise<Dispatched> {
    const { ownership, window, target, outcomes } = this.#options;
    try {
      await countCrashes(batch, this.#options);
    } catch (error) {
      return { undecided: batch, down: PostboxError.from(error) };
    }
    // Counting crashes may have taken longer than the lease.
    if (!ownership.trusted()) return { undecided: batch };
    // Some lanes may have turned out to belong to another relay.
    const ours = batch.filter((row) => window.isOnItsWay(row));
    try {
      return await target.handOver(ours, (row, outcome) => outcomes.report(row, outcome), ownership.epochs);
    } catch (error) {
      return { undecided: ours, down: PostboxError.from(error) };
    }
  }
}
