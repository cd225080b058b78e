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
  /** This relay owns these lanes from now on. */
  gained(lanes: readonly TakenLane[]): void;
  /** Another relay owns these lanes now: outcomes of their rows no longer count here. */
  lost(lanes: readonly number[]): void;
  /** An expired lease is valid again, or an operator has resumed the box. */
  resumed(): void;
  /**
   * Finishes what is in flight in these lanes. Returns the lanes that are idle now; the others took too long, and are
   * kept.
   */
  drain(lanes: readonly number[]): Promise<readonly number[]>;
  /** Lanes that other relays should take for now. */
  unwanted(): readonly number[];
}

/** The lanes of one relay: its fair share, as long as it runs. */
export interface Ownership {
  /** The lanes that this relay owns, with their epochs. */
  readonly epochs: ReadonlyMap<number, number>;
  /** Whether the lease is certainly still valid. Ask before every send; settling is fenced by the store itself. */
  trusted(): boolean;
  /** Whether an operator has paused the box: nothing more is sent. */
  paused(): boolean;
  /** The lanes of these rows that this relay owns. */
  of(rows: readonly Pick<Lane, "lane">[]): readonly Lane[];
  /**
   * Gives up lanes that turned out to belong to another relay. Lanes that this relay has taken again since, under
   * another epoch, stay.
   */
  lose(lanes: readonly Lane[]): void;
  /**
   * Loses all lanes and regains them at once, so that they are read from the start: what was known of them may be
   * wrong.
   */
  startAnew(): void;
  /**
   * Shares lanes until `signal` is aborted, and renews the lease until `finished` is: at a stop, finishing what is in
   * flight may take longer than a lease. Rejects if retrying can never succeed.
   */
  run(signal: AbortSignal, finished?: AbortSignal): Promise<void>;
}

/**
 * The lease is timed on the monotonic clock, from *before* each renewal was sent: a slow answer must not extend it, and
 * the host's clock may jump. Renewing and sharing are separate loops, so that draining a lane never delays a renewal.
 */
export class LeasedLanes implements Ownership {
  readonly #options: OwnershipOptions;
  readonly #members: Members;
  readonly epochs = new Map<number, number>();
  /** The last epoch of each lane that this relay owned once and does not own now. */
  readonly #givenUp = new Map<number, number>();
  #trustedUntil = 0;
  #paused = false;
  #lookBeyondAt: number;
  /**
   * The last call about lanes. Calls run one at a time: the answer to a renewal would contradict lanes that were taken
   * or given back meanwhile.
   */
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
    // A total order needs all lanes.
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
    // An operator's change takes a lane away, and this relay may take it again before the next renewal reports the
    // loss. What is known of its rows, and what is to be settled under the old epoch, is outdated then.
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

  /** Runs one call about lanes at a time. */
  #inTurn<R>(call: () => Promise<R>): Promise<R> {
    const result = this.#turn.then(call, call);
    this.#turn = result.catch(() => {});
    return result;
  }

  /** Repeats `step`, after the pause that it returns, or after growing delays while it fails. */
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
      // A relay that cannot renew its lease must not send.
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
    // Lanes that it had given up but still owned, or that a call took whose answer was lost. Those may have had any
    // owner before.
    const missed = lanes.filter(({ lane }) => !this.epochs.has(lane));
    this.#gain(missed.map(({ lane, epoch }) => ({ lane, epoch, clean: this.#givenUp.get(lane) === epoch })));
    if (hadRunOut || goesOn) this.#options.resumed();
  }

  async #share(): Promise<number> {
    const { order, leaseMs, pollIntervalMs, runtime } = this.#options;
    const share = order === "total" ? laneCount : Math.ceil(laneCount / this.#members.sharing);
    const fair = this.#paused ? 0 : share;
    const { size } = this.epochs;
    // Now and then it tries for one lane more, since other relays may not want what is left.
    const beyond = size === fair && fair < laneCount && !this.#paused && runtime.monotonic() >= this.#lookBeyondAt;
    if (beyond) this.#lookBeyondAt = runtime.monotonic() + leaseMs / 3;
    if ((size < fair || beyond) && this.trusted())
      await this.#inTurn(() => this.#take(beyond ? 1 : fair - this.epochs.size));
    // Gives back the lanes that it has owned longest: a lane that it has just taken is one that no other relay wanted.
    else if (size > fair) await this.#handOver(this.#owned.slice(0, size - fair));
    // Before the first renewal, there is nothing to share yet.
    return this.trusted() ? pollIntervalMs : Math.min(pollIntervalMs, 10);
  }

  async #take(most: number): Promise<void> {
    const { box, owner, order, runtime, unwanted } = this.#options;
    // A total order needs all lanes: two relays that own a part each would wait for each other.
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
