import { sleep } from "../../internal/runtime.js";
import { createWake, type Wake } from "../../internal/wake.js";
import type { Lane, Row, Settlement, Writers } from "../../store.js";
import type { DrainContext } from "../context.js";
import { type Decision, sentEvent } from "../deciding/decide.js";
import type { Ownership } from "../owning/ownership.js";

export interface SettlerOptions extends DrainContext {
  readonly ownership: Ownership;
  /** A decision has committed. Not called for rows of lanes that were lost meanwhile, or turned out to be. */
  settled(decision: Decision): void;
  /** A settle has ended, with whatever result: there is room for more. */
  roomLeft(): void;
  /** A transaction that reads may have reported as a writer in progress was only a settle. */
  appendedNothing(writer: Writers): void;
}

/** Large enough for few settles, small enough for quick ones. */
const mostAtOnce = 2000;

/** Stores what happens to rows: one statement at a time, with all decisions that have gathered meanwhile. */
export class Settler {
  readonly #options: SettlerOptions;
  readonly #wake: Wake;
  #queue: Decision[] = [];
  #settling = 0;
  /**
   * Lanes that were lost during a settle. They may have been regained, but what is known of them now is not what was
   * settled.
   */
  #lost = new Set<number>();

  constructor(options: SettlerOptions) {
    this.#options = options;
    this.#wake = createWake(options.runtime);
  }

  /** How many decisions are not stored yet. */
  get size(): number {
    return this.#queue.length + this.#settling;
  }

  add(decisions: readonly Decision[]): void {
    for (const decision of decisions) this.#queue.push(decision);
    this.#wake.wake();
  }

  /** Adds the decision about a row that was sent. */
  sent(row: Row): void {
    this.#queue.push({ settlement: { row, to: "sent" } });
    this.#wake.wake();
  }

  /** Forgets the decisions about a lost lane. */
  drop(lane: number): void {
    this.#lost.add(lane);
    this.#queue = this.#queue.filter(({ settlement }) => settlement.row.lane !== lane);
  }

  /** Runs until `finish` is aborted and everything is settled. */
  async run(finish: AbortSignal): Promise<void> {
    while (!finish.aborted || this.#queue.length > 0) {
      if (this.#queue.length === 0) {
        await this.#wake.wait(finish);
        continue;
      }
      const batch = this.#queue.length <= mostAtOnce ? this.#queue : this.#queue.slice(0, mostAtOnce);
      this.#queue = this.#queue.length <= mostAtOnce ? [] : this.#queue.slice(mostAtOnce);
      this.#settling = batch.length;
      await this.#settle(batch, finish);
      this.#settling = 0;
      this.#options.roomLeft();
    }
  }

  async #settle(decisions: readonly Decision[], finish: AbortSignal): Promise<void> {
    const { ownership, runtime, appendedNothing } = this.#options;
    if (runtime.failpoint) await runtime.failpoint("relay.sent");
    const settlements = decisions.map(({ settlement }) => settlement);
    // The current epochs: decisions under an earlier epoch were dropped when the lane was lost.
    const lanes = ownership.of(settlements.map(({ row }) => row));
    this.#lost = new Set();
    const settled = await this.#stored(lanes, settlements, finish);
    if (settled === undefined) return;
    if (runtime.failpoint) await runtime.failpoint("relay.settled");
    const { standing, writer } = settled;
    if (writer !== undefined) appendedNothing(writer);
    this.#tell(decisions, standing);
    ownership.lose(lanes.filter(({ lane }) => !standing.has(lane)));
  }

  /**
   * Retries until it succeeds, the lease expires, or a stop cannot wait any longer. Giving up means that what was sent
   * is sent again.
   */
  async #stored(lanes: readonly Lane[], settlements: readonly Settlement[], finish: AbortSignal) {
    const { box, ownership, runtime, keep, order, storeBackoff, failed } = this.#options;
    for (let failures = 1; ; failures++) {
      try {
        return await box.settle(lanes, settlements, { keep, alone: order === "none" });
      } catch (error) {
        const retryInMs = storeBackoff(failures);
        failed(error, retryInMs);
        // During a stop, it retries only once.
        if (finish.aborted && failures > 1) return undefined;
        if (!ownership.trusted()) {
          // This relay can no longer settle these rows. The next owner of the lanes reads them again.
          ownership.lose(lanes);
          return undefined;
        }
        await sleep(runtime, retryInMs, finish);
      }
    }
  }

  #tell(decisions: readonly Decision[], owned: ReadonlySet<number>): void {
    const { boxName, telemetry, settled } = this.#options;
    let [sent, waiting] = [0, 0];
    for (const decision of decisions) {
      const { settlement, event } = decision;
      // On a lost lane nothing was settled: the new owner reports what happens to the row.
      if (!owned.has(settlement.row.lane)) continue;
      if (settlement.to === "sent") sent++;
      if (settlement.to === "wait") waiting++;
      if (!this.#lost.has(settlement.row.lane)) settled(decision);
      telemetry(event ?? sentEvent(settlement.row, boxName));
    }
    telemetry({ name: "relay.settled", box: boxName, sent, waiting });
  }
}
