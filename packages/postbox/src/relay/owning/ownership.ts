import { following } from "../../internal/following.js";
import { laneCount, renewalsPerLease } from "../../internal/lane.js";
import { sleep } from "../../internal/runtime.js";
import type { Lane, TakenLane } from "../../store.js";
import type { DrainContext } from "../context.js";
import { checkOrder, Members } from "./members.js";

export interface OwnershipOptions
  extends Pick<
    DrainContext,
    | "box"
    | "boxName"
    | "order"
    | "leaseMs"
    | "pollIntervalMs"
    | "storeBackoff"
    | "runtime"
    | "telemetry"
    | "failed"
    | "isFatal"
  > {
  readonly owner: string;
  /** The store has answered. */
  reached(): void;
  /** These are ours from now on. */
  gained(lanes: readonly TakenLane[]): void;
  /** These are another's: what is in flight there no longer concerns us. */
  lost(lanes: readonly number[]): void;
  /** The lease had run out, and stands again; or the box was paused, and is not any more. */
  resumed(): void;
  /** Finishes what is in flight in these lanes. Answers with those where it has; the others took too long, and are kept. */
  drain(lanes: readonly number[]): Promise<readonly number[]>;
  /** Lanes that are better with others for now. */
  unwanted(): readonly number[];
}

/** The lanes of one relay: its fair share of them, as long as it lives. */
export interface Ownership {
  /** The epoch of each lane that is ours. */
  readonly epochs: ReadonlyMap<number, number>;
  /** Whether our lease certainly still stands. Ask before every send; settling is fenced by the store itself. */
  trusted(): boolean;
  /** Whether an operator has paused the box: nothing more is sent. */
  paused(): boolean;
  /** The lanes of these rows that are ours. */
  of(rows: readonly Pick<Lane, "lane">[]): readonly Lane[];
  /** These turned out to be somebody else's; those that have been taken again since, under another epoch, are not. */
  lose(lanes: readonly Lane[]): void;
  /** Loses all lanes and gains them at once, so that they are read from their beginning: what was known of them may be wrong. */
  startAnew(): void;
  /**
   * Shares until the signal is aborted, and renews until `finished` is: what is on its way at a stop may take longer than a
   * lease. Rejects for what no retry can mend.
   */
  run(signal: AbortSignal, finished?: AbortSignal): Promise<void>;
}

/**
 * Trust is counted on the monotonic clock from *before* each renewal was sent: a slow answer must not stretch it, and the host's clock
 * may jump. Renewing and sharing are two loops, so that a drain never delays a renewal.
 */
export class LeasedLanes implements Ownership {
  readonly #options: OwnershipOptions;
  readonly #members: Members;
  readonly epochs = new Map<number, number>();
  /** The last epoch of each lane that was its own and is not. */
  readonly #givenUp = new Map<number, number>();
  #trustedUntil = 0;
  #paused = false;
  #lookBeyondAt: number;
  /** The last call about lanes: the answer of a renewal that was sent before lanes were taken or given back would contradict that. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: OwnershipOptions) {
    this.#options = options;
    this.#members = new Members(options.runtime);
    this.#lookBeyondAt = options.runtime.monotonic() + options.leaseMs / 3;
  }

  trusted(): boolean {
    return this.#options.runtime.monotonic() < this.#trustedUntil;
  }

  paused(): boolean {
    return this.#paused;
  }

  of(rows: readonly Pick<Lane, "lane">[]): readonly Lane[] {
    return [...new Set(rows.map(({ lane }) => lane))].flatMap((lane) => {
      const epoch = this.epochs.get(lane);
      return epoch === undefined ? [] : [{ lane, epoch }];
    });
  }

  lose(lost: readonly Lane[]): void {
    const { order, boxName, owner, telemetry } = this.#options;
    const own = lost.filter(({ lane, epoch }) => this.epochs.get(lane) === epoch);
    if (own.length === 0) return;
    // An order of everything needs everything.
    const lanes = order === "total" ? [...this.epochs.keys()] : own.map(({ lane }) => lane);
    this.#giveUp(lanes);
    telemetry({ name: "relay.lost", box: boxName, owner, lanes: lanes.length });
  }

  startAnew(): void {
    const lanes = this.#owned;
    this.#options.lost(lanes.map(({ lane }) => lane));
    this.#options.gained(lanes.map((lane) => ({ ...lane, clean: true })));
  }

  async run(signal: AbortSignal, finished = signal): Promise<void> {
    const [stop, end] = [following(signal), following(finished)];
    const renewing = this.#loop(end.signal, async () => {
      await this.#inTurn(() => this.#renew());
      return this.#options.leaseMs / renewalsPerLease;
    });
    const sharing = this.#loop(stop.signal, () => this.#share());
    try {
      await Promise.all([renewing, sharing]);
    } finally {
      for (const { abort } of [stop, end]) abort();
      await Promise.allSettled([renewing, sharing]);
    }
  }

  get #owned(): Lane[] {
    return [...this.epochs].map(([lane, epoch]) => ({ lane, epoch }));
  }

  #gain(lanes: readonly TakenLane[]): void {
    const { boxName, owner, gained, telemetry } = this.#options;
    if (lanes.length === 0) return;
    // An operator's change takes a lane from its owner, who may take it again before the next renewal tells: what is known of its rows,
    // and what is to be settled under the old epoch, must not outlive that.
    this.lose(this.of(lanes));
    for (const { lane, epoch } of lanes) this.epochs.set(lane, epoch);
    gained(lanes);
    telemetry({ name: "relay.owned", box: boxName, owner, lanes: lanes.length });
  }

  #giveUp(lanes: readonly number[]): void {
    for (const lane of lanes) {
      this.#givenUp.set(lane, this.epochs.get(lane) as number);
      this.epochs.delete(lane);
    }
    this.#options.lost(lanes);
  }

  /** One call about lanes at a time. */
  #inTurn<R>(call: () => Promise<R>): Promise<R> {
    const result = this.#turn.then(call, call);
    this.#turn = result.catch(() => {});
    return result;
  }

  /** Runs `step` again and again, each time after the pause that it asks for, and after growing ones when it fails. */
  async #loop(signal: AbortSignal, step: () => Promise<number>): Promise<void> {
    const { isFatal, storeBackoff, failed, runtime } = this.#options;
    let failures = 0;
    while (!signal.aborted) {
      let pauseMs: number;
      try {
        pauseMs = await step();
        failures = 0;
      } catch (error) {
        if (isFatal(error)) throw error;
        pauseMs = storeBackoff(++failures);
        failed(error, pauseMs);
      }
      // What cannot be renewed must not be sent.
      if (!this.trusted()) this.lose(this.#owned);
      await sleep(runtime, pauseMs, signal);
    }
  }

  async #renew(): Promise<void> {
    const { box, boxName, owner, leaseMs, order, runtime, telemetry } = this.#options;
    const sentAt = runtime.monotonic();
    const { lanes, others, paused } = await box.renew(owner, leaseMs, order);
    this.#options.reached();
    const goesOn = this.#paused && !paused;
    if (paused !== this.#paused) telemetry({ name: paused ? "relay.paused" : "relay.resumed", box: boxName });
    this.#paused = paused;
    const hadRunOut = !this.trusted();
    this.#trustedUntil = sentAt + leaseMs;
    checkOrder(others, owner, order, boxName);
    this.#members.saw(others);
    const ours = new Map(lanes.map(({ lane, epoch }) => [lane, epoch]));
    this.lose(this.#owned.filter(({ lane, epoch }) => ours.get(lane) !== epoch));
    // Its own all the while, though it had given up on them; or taken by a call whose answer was lost, from any owner.
    const missed = lanes.filter(({ lane }) => !this.epochs.has(lane));
    this.#gain(missed.map(({ lane, epoch }) => ({ lane, epoch, clean: this.#givenUp.get(lane) === epoch })));
    if (hadRunOut || goesOn) this.#options.resumed();
  }

  async #share(): Promise<number> {
    const { order, leaseMs, pollIntervalMs, runtime } = this.#options;
    const share = order === "total" ? laneCount : Math.ceil(laneCount / this.#members.sharing);
    const fair = this.#paused ? 0 : share;
    const { size } = this.epochs;
    // Now and then one more than that: others may not want what is left over.
    const beyond = size === fair && fair < laneCount && !this.#paused && runtime.monotonic() >= this.#lookBeyondAt;
    if (beyond) this.#lookBeyondAt = runtime.monotonic() + leaseMs / 3;
    if ((size < fair || beyond) && this.trusted())
      await this.#inTurn(() => this.#take(beyond ? 1 : fair - this.epochs.size));
    // Those that it has had longest: one that was just taken is one that nobody wanted.
    else if (size > fair) await this.#handOver(this.#owned.slice(0, size - fair));
    // Before the first renewal there is nothing to share yet.
    return this.trusted() ? pollIntervalMs : Math.min(pollIntervalMs, 10);
  }

  async #take(most: number): Promise<void> {
    const { box, owner, order, runtime, unwanted } = this.#options;
    // An order of everything needs everything: two that had some of the lanes would wait for each other.
    const least = order === "total" ? most : 0;
    const gained = await box.own(owner, most, { dead: this.#members.dead(), least, except: unwanted() });
    if (gained.length > 0 && runtime.failpoint) await runtime.failpoint("relay.owned");
    this.#gain(gained);
  }

  async #handOver(surplus: readonly Lane[]): Promise<void> {
    const drained = new Set(await this.#options.drain(surplus.map(({ lane }) => lane)));
    if (drained.size > 0) await this.#inTurn(() => this.#giveBack(surplus.filter(({ lane }) => drained.has(lane))));
  }

  async #giveBack(lanes: readonly Lane[]): Promise<void> {
    const { box, boxName, owner, telemetry } = this.#options;
    const still = lanes.filter(({ lane, epoch }) => this.epochs.get(lane) === epoch);
    this.#giveUp(still.map(({ lane }) => lane));
    await box.release(owner, still);
    telemetry({ name: "relay.released", box: boxName, owner, lanes: still.length });
  }
}
