import { ConfigError } from "../../errors.js";
import { following } from "../../internal/following.js";
import { laneCount } from "../../internal/lane.js";
import { type Runtime, sleep } from "../../internal/runtime.js";
import type { Box, Lane, Member, Order, TakenLane } from "../../store.js";
import type { Telemetry } from "../../telemetry/events.js";

export interface OwnershipOptions {
  readonly box: Box;
  readonly boxName: string;
  readonly owner: string;
  /** With `total`, one relay has all the lanes, and the others stand by. */
  readonly order: Order;
  readonly leaseMs: number;
  readonly pollIntervalMs: number;
  /** How long to wait after so many failures of the store in a row. */
  storeBackoff(failures: number): number;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
  failed(error: unknown, retryInMs: number): void;
  isFatal(error: unknown): boolean;
  /** The store has answered. */
  reached(): void;
  /** These are ours from now on. */
  gained(lanes: readonly TakenLane[]): void;
  /** These are somebody else's: what is on its way there no longer concerns us. */
  lost(lanes: readonly number[]): void;
  /** The lease had run out, and stands again; or the box was paused, and is not any more. */
  resumed(): void;
  /** Finishes what is on its way in these lanes. Answers with those where it has; the others took too long, and are kept. */
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
 * Trust is counted on the monotonic clock from *before* each renewal was sent: a slow answer must not stretch it, and the
 * host's clock may jump. Renewing and sharing are two loops, so that a drain never delays a renewal.
 */
export function createOwnership(options: OwnershipOptions): Ownership {
  const { box, boxName, owner, order, leaseMs, runtime, telemetry } = options;
  const epochs = new Map<number, number>();
  /** The last epoch of each lane that was ours and is not. */
  const givenUp = new Map<number, number>();
  let trustedUntil = 0;
  let members = 1;
  let paused = false;
  let lookBeyondAt = runtime.monotonic() + leaseMs / 3;
  /** The last beat of each other member, and since when it has been the last. */
  let beats = new Map<string, Pick<Member, "beat" | "leaseMs"> & { readonly since: number }>();
  const trusted = () => runtime.monotonic() < trustedUntil;
  const owned = (): Lane[] => [...epochs].map(([lane, epoch]) => ({ lane, epoch }));

  function gain(lanes: readonly TakenLane[]): void {
    if (lanes.length === 0) return;
    // An operator's change takes a lane from its owner, who may take it again before the next renewal tells: what is known of its rows,
    // and what is to be settled under the old epoch, must not outlive that.
    lose(lanes.flatMap(({ lane }) => (epochs.has(lane) ? [{ lane, epoch: epochs.get(lane) as number }] : [])));
    for (const { lane, epoch } of lanes) epochs.set(lane, epoch);
    options.gained(lanes);
    telemetry({ name: "relay.owned", box: boxName, owner, lanes: lanes.length });
  }

  function giveUp(lane: number): void {
    givenUp.set(lane, epochs.get(lane) as number);
    epochs.delete(lane);
  }

  function lose(lost: readonly Lane[]): void {
    const own = lost.filter(({ lane, epoch }) => epochs.get(lane) === epoch);
    if (own.length === 0) return;
    // An order of everything needs everything.
    const known = order === "total" ? [...epochs.keys()] : own.map(({ lane }) => lane);
    for (const lane of known) giveUp(lane);
    options.lost(known);
    telemetry({ name: "relay.lost", box: boxName, owner, lanes: known.length });
  }

  /**
   * One call about lanes at a time: the answer of a renewal that was sent before lanes were taken or given back would
   * contradict that.
   */
  let turn: Promise<unknown> = Promise.resolve();
  function inTurn<R>(call: () => Promise<R>): Promise<R> {
    const result = turn.then(call, call);
    turn = result.catch(() => {});
    return result;
  }

  async function renew(): Promise<void> {
    const sentAt = runtime.monotonic();
    const { lanes, others, ...now } = await box.renew(owner, leaseMs, order);
    options.reached();
    const goesOn = paused && !now.paused;
    if (now.paused !== paused) telemetry({ name: now.paused ? "relay.paused" : "relay.resumed", box: boxName });
    paused = now.paused;
    const hadRunOut = !trusted();
    trustedUntil = sentAt + leaseMs;
    watch(others);
    members = 1 + others.filter(shares).length;
    const ours = new Map(lanes.map(({ lane, epoch }) => [lane, epoch]));
    lose(owned().filter(({ lane, epoch }) => ours.get(lane) !== epoch));
    // Ours all the while, though we had given up on them; or taken by a call whose answer was lost, from whomever.
    const missed = lanes.filter(({ lane }) => !epochs.has(lane));
    gain(missed.map(({ lane, epoch }) => ({ lane, epoch, clean: givenUp.get(lane) === epoch })));
    if (hadRunOut || goesOn) options.resumed();
  }

  function watch(others: readonly Member[]): void {
    // Of two who disagree, the one who came later gives way: owners are numbered by time.
    const rival = others.find((other) => other.expiresInMs > 0 && other.order !== order && other.owner < owner);
    if (rival !== undefined) {
      throw new ConfigError(
        "option-invalid",
        `createRelay: another relay of the box ${boxName} runs with order "${rival.order}", this one with "${order}"; ` +
          "give all of them the same, and stop the others before you change it",
        { path: "order" },
      );
    }
    const now = runtime.monotonic();
    beats = new Map(
      others.map(({ owner, beat, leaseMs }) => {
        const before = beats.get(owner);
        return [owner, before?.beat === beat ? before : { beat, leaseMs, since: now }];
      }),
    );
  }

  /** Who has not renewed for so long is dead, even if the database's clock was set back and its lease seems to stand. */
  function dead(): Pick<Member, "owner" | "beat">[] {
    const now = runtime.monotonic();
    return [...beats]
      .filter(([, { since, leaseMs }]) => now - since > 1.5 * leaseMs)
      .map(([owner, { beat }]) => ({ owner, beat }));
  }

  /** Runs `step` again and again, each time after the pause that it asks for, and after growing ones when it fails. */
  async function loop(signal: AbortSignal, step: () => Promise<number>): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      let pauseMs: number;
      try {
        pauseMs = await step();
        failures = 0;
      } catch (error) {
        if (options.isFatal(error)) throw error;
        pauseMs = options.storeBackoff(++failures);
        options.failed(error, pauseMs);
      }
      // What cannot be renewed is not ours to send.
      if (!trusted()) lose(owned());
      await sleep(runtime, pauseMs, signal);
    }
  }

  async function share(): Promise<number> {
    const fair = paused ? 0 : order === "total" ? laneCount : Math.ceil(laneCount / members);
    // Now and then one more than that: somebody may not want what is left over.
    const beyond = epochs.size === fair && fair < laneCount && !paused && runtime.monotonic() >= lookBeyondAt;
    if (beyond) lookBeyondAt = runtime.monotonic() + leaseMs / 3;
    if ((epochs.size < fair || beyond) && trusted()) {
      await inTurn(async () => {
        const most = beyond ? 1 : fair - epochs.size;
        // An order of everything needs everything: two that had some of the lanes would wait for each other.
        const least = order === "total" ? most : 0;
        const gained = await box.own(owner, most, { dead: dead(), least, except: options.unwanted() });
        if (gained.length > 0 && runtime.failpoint) await runtime.failpoint("relay.owned");
        gain(gained);
      });
    } else if (epochs.size > fair) {
      // Those that it has had longest: one that was just taken is one that nobody wanted.
      const surplus = owned().slice(0, epochs.size - fair);
      const drained = new Set(await options.drain(surplus.map(({ lane }) => lane)));
      if (drained.size > 0) await inTurn(() => giveBack(surplus.filter(({ lane }) => drained.has(lane))));
    }
    // Before the first renewal there is nothing to share yet.
    return trusted() ? options.pollIntervalMs : Math.min(options.pollIntervalMs, 10);
  }

  async function giveBack(lanes: readonly Lane[]): Promise<void> {
    const still = lanes.filter(({ lane, epoch }) => epochs.get(lane) === epoch);
    for (const { lane } of still) giveUp(lane);
    options.lost(still.map(({ lane }) => lane));
    await box.release(owner, still);
    telemetry({ name: "relay.released", box: boxName, owner, lanes: still.length });
  }

  return {
    epochs,
    trusted,
    paused: () => paused,
    lose,
    startAnew() {
      const lanes = owned();
      options.lost(lanes.map(({ lane }) => lane));
      options.gained(lanes.map((lane) => ({ ...lane, clean: true })));
    },
    of: (rows) =>
      [...new Set(rows.map(({ lane }) => lane))].flatMap((lane) => {
        const epoch = epochs.get(lane);
        return epoch === undefined ? [] : [{ lane, epoch }];
      }),
    async run(signal, finished = signal) {
      const [stop, end] = [following(signal), following(finished)];
      const renewing = loop(end.signal, async () => {
        await inTurn(renew);
        return leaseMs / 3;
      });
      const sharing = loop(stop.signal, share);
      try {
        await Promise.all([renewing, sharing]);
      } finally {
        for (const { abort } of [stop, end]) abort();
        await Promise.allSettled([renewing, sharing]);
      }
    },
  };
}

/** Whether it has renewed within the last half of a lease. A member that has not is most likely dead, and needs no share. */
function shares({ expiresInMs, leaseMs }: Member): boolean {
  return expiresInMs > leaseMs / 2;
}
