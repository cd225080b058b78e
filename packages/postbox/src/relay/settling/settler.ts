import { sleep } from "../../internal/runtime.js";
import { createWake } from "../../internal/wake.js";
import type { Settled, Writers } from "../../store.js";
import type { DrainContext } from "../context.js";
import { type Decision, sentEvent } from "../deciding/decide.js";
import type { Ownership } from "../owning/ownership.js";

export interface SettlerOptions extends DrainContext {
  readonly ownership: Ownership;
  /** It has committed; not called for rows of lanes that were lost meanwhile, or turned out to be. */
  settled(decision: Decision): void;
  /** A settle is over, whatever came of it: there is room for more. */
  roomLeft(): void;
  /** A transaction that reads may have shown among the writers in progress was only a settle. */
  appendedNothing(writer: Writers): void;
}

/** Stores what became of rows: one statement at a time, with everything that has gathered meanwhile. */
export interface Settler {
  readonly size: number;
  add(decisions: readonly Decision[]): void;
  /** Forgets what was to be settled in a lane that is lost. */
  drop(lane: number): void;
  /** Runs until `finish` is aborted and everything is settled. */
  run(finish: AbortSignal): Promise<void>;
}

/** Large enough to be rare, small enough to be quick. */
const mostAtOnce = 2000;

export function createSettler(options: SettlerOptions): Settler {
  const { box, boxName, ownership, runtime, telemetry } = options;
  const wake = createWake(runtime);
  let queue: Decision[] = [];
  let settling = 0;
  /** Lanes that were lost while a settle was under way. They may be back: what is known of them is not what it settled. */
  let lost = new Set<number>();

  /** Until it is done, or the lease has run out, or a stop cannot wait: giving up sends again what has been sent. */
  async function settle(decisions: readonly Decision[], finish: AbortSignal): Promise<void> {
    if (runtime.failpoint) await runtime.failpoint("relay.sent");
    const settlements = decisions.map(({ settlement }) => settlement);
    // The epochs of now: what was queued under an earlier one of a lane was dropped when the lane was lost.
    const lanes = ownership.of(settlements.map(({ row }) => row));
    lost = new Set();
    let settled: Settled | undefined;
    for (let failures = 0; settled === undefined; ) {
      try {
        settled = await box.settle(lanes, settlements, { keep: options.keep, alone: options.order === "none" });
      } catch (error) {
        const retryInMs = options.storeBackoff(++failures);
        options.failed(error, retryInMs);
        // A stop gives it one more chance, not for ever.
        if (finish.aborted && failures > 1) return;
        if (!ownership.trusted()) {
          // Nobody would ever finish these here: let them be read again, by whoever owns the lanes then.
          ownership.lose(lanes);
          return;
        }
        await sleep(runtime, retryInMs, finish);
      }
    }
    if (runtime.failpoint) await runtime.failpoint("relay.settled");
    const { standing, writer } = settled;
    if (writer !== undefined) options.appendedNothing(writer);
    tell(decisions, standing);
    ownership.lose(lanes.filter(({ lane }) => !standing.has(lane)));
  }

  function tell(decisions: readonly Decision[], owned: ReadonlySet<number>): void {
    let [sent, waiting] = [0, 0];
    for (const decision of decisions) {
      const { settlement, event } = decision;
      // On a lost lane nothing was settled: its new owner tells what becomes of the row.
      if (!owned.has(settlement.row.lane)) continue;
      if (settlement.to === "sent") sent++;
      if (settlement.to === "wait") waiting++;
      if (!lost.has(settlement.row.lane)) options.settled(decision);
      telemetry(event ?? sentEvent(settlement.row, boxName));
    }
    telemetry({ name: "relay.settled", box: boxName, sent, waiting });
  }

  return {
    get size() {
      return queue.length + settling;
    },
    add(decisions) {
      for (const decision of decisions) queue.push(decision);
      wake.wake();
    },
    drop(lane) {
      lost.add(lane);
      queue = queue.filter(({ settlement }) => settlement.row.lane !== lane);
    },
    async run(finish) {
      while (!(finish.aborted && queue.length === 0)) {
        if (queue.length === 0) {
          await wake.wait(finish);
          continue;
        }
        const batch = queue.length <= mostAtOnce ? queue : queue.slice(0, mostAtOnce);
        queue = queue.length <= mostAtOnce ? [] : queue.slice(mostAtOnce);
        settling = batch.length;
        await settle(batch, finish);
        settling = 0;
        options.roomLeft();
      }
    },
  };
}
