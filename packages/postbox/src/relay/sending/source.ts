import { PostboxError } from "../../errors.js";
import { following } from "../../internal/following.js";
import type { Runtime } from "../../internal/runtime.js";
import { soundError } from "../../internal/sound-error.js";
import { isNobodysFault } from "../../router/nobodys-fault.js";
import type { Row } from "../../store.js";
import type { Delivery, Kept, Receiver, Subscription } from "../../transport.js";
import type { RowOutcome, Target } from "../target.js";

/** Runs an engine with what takes its rows, until the signal is aborted and everything that was taken is settled. */
export type RunDrainLoop = (target: Target, signal: AbortSignal, reached?: () => void) => Promise<void>;

/** A row of a box that its consumer takes out itself. */
export interface Claim extends Kept {
  readonly row: Row;
  /** Of its lane, when it was handed over. */
  readonly epoch: number;
}

export interface SourceOptions {
  readonly name: string;
  /** The name of the box, if its consumer takes rows out of it itself: then each delivery carries its claim. */
  readonly claimed?: string;
  /** For how long a lane that was lost with rows at a consumer, which still has them, is better with others. */
  readonly shunMs: number;
  readonly runtime: Runtime;
}

/** A box as a receiver: each row is a delivery, and what becomes of the one becomes of the other. */
export function createSource(options: SourceOptions, drain: RunDrainLoop): Receiver {
  const { name } = options;
  return {
    name,
    storesFailures: true,
    async receive(subscription, signal) {
      const stop = following(signal);
      let failure: { readonly cause: unknown } | undefined;
      const broken = (cause: unknown) => {
        failure ??= { cause };
        stop.abort();
      };
      const target = targetFor(options, subscription, stop.signal, broken);
      try {
        await drain(target, stop.signal, () => subscription.ready?.());
      } finally {
        stop.abort();
        target.end();
      }
      if (failure !== undefined) throw failure.cause;
    },
  };
}

interface SourceTarget extends Target {
  /** The lanes are given back: what is not stored by now will not be. */
  end(): void;
}

type Report = (row: Row, outcome: RowOutcome) => void;

function targetFor(
  { name, claimed, shunMs, runtime }: SourceOptions,
  subscription: Subscription,
  stopping: AbortSignal,
  broken: (cause: unknown) => void,
): SourceTarget {
  /** Handed over, and nobody has said what became of it; or when it was lost. */
  const unsettled = new Map<Row, "ours" | number>();
  const now = () => runtime.monotonic();
  /** Settled by its consumer, and not stored yet. */
  const storing = new Map<Row, { stored(): void; lost(): void }>();
  let emptied = () => {};
  let abandoned = false;
  /** Ends the hand-over that is under way, if nothing more than its consumer's own affairs can come of it. */
  let letGo = () => {};
  stopping.addEventListener("abort", () => letGo(), { once: true });

  function close(row: Row): void {
    unsettled.delete(row);
    letGo();
    if (unsettled.size === 0) emptied();
  }

  /** Resolves when the consumer has taken the row; at a stop, when it has settled it: it may wait for what is never stored. */
  function handOver(row: Row, report: Report, epoch: number): Promise<void> {
    unsettled.set(row, "ours");
    return new Promise((resolve) => {
      letGo = () => {
        if (stopping.aborted && !unsettled.has(row)) resolve();
      };
      const taken = (async () => subscription.deliver(deliveryOf(row, report, epoch)))();
      taken
        .catch((cause: unknown) => {
          abandon();
          broken(cause);
        })
        .finally(resolve);
    });
  }

  function deliveryOf(row: Row, report: Report, epoch: number): Delivery {
    const { id } = row.message;
    const claim: Claim | undefined =
      claimed === undefined ? undefined : { box: claimed, row, epoch, handled: false, committed: false };
    let by: string | undefined;
    const only = (verb: string): void => {
      if (by !== undefined) {
        throw new PostboxError(
          "delivery-settled",
          `${verb}() on the delivery of ${id}, which ${by}() has settled already; settle each delivery once`,
        );
      }
      by = verb;
    };
    const settle = (verb: string, outcome: RowOutcome): Promise<void> =>
      new Promise((resolve, reject) => {
        only(verb);
        const lost = () => reject(laneLost(verb, id));
        if (unsettled.get(row) !== "ours") {
          // What was handled has left the box, whoever has its lane now.
          if (claim?.committed && verb === "ack") resolve();
          else lost();
        } else {
          storing.set(row, { stored: resolve, lost });
          report(row, outcome);
        }
        close(row);
      });
    return {
      message: row.message,
      attempt: row.attempts + 1,
      ...(claim && { kept: claim }),
      // What waited leaves a hold behind, which a settle ends.
      ack: () => settle("ack", { status: claim?.committed && !row.waiting ? "handled" : "sent" }),
      retry: (delayMs, error = new Error("its consumer asked for another try")) =>
        settle("retry", {
          status: "failed",
          error: soundError(error),
          retryInMs: delayMs,
          ...(isNobodysFault(error) && { uncounted: true }),
        }),
      park: (error) => settle("park", { status: "rejected", error: soundError(error) }),
      async release() {
        only("release");
        // Nothing is stored for it: on a lost lane it is with another already.
        if (unsettled.get(row) === "ours") report(row, { status: "released" });
        close(row);
      },
    };
  }

  /** As when its process dies: nobody is waited for, and what comes of it does not count. */
  function abandon(): void {
    abandoned = true;
    for (const row of unsettled.keys()) unsettled.set(row, now());
    emptied();
  }

  return {
    name,
    keepsOrder: false,
    oneByOne: true,
    most: () => 1,
    async handOver([row], report, epochs) {
      const epoch = row && epochs.get(row.lane);
      if (row !== undefined && epoch !== undefined && !stopping.aborted) await handOver(row, report, epoch);
      else if (row !== undefined) report(row, { status: "released" });
      return { undecided: [] };
    },
    async idle() {
      if (unsettled.size > 0 && !abandoned) await new Promise<void>((resolve) => (emptied = resolve));
    },
    stored(row) {
      storing.get(row)?.stored();
      storing.delete(row);
    },
    lost(lanes) {
      const gone = new Set(lanes);
      for (const row of unsettled.keys()) if (gone.has(row.lane)) unsettled.set(row, now());
      for (const [row, { lost }] of storing) {
        if (!gone.has(row.lane)) continue;
        storing.delete(row);
        lost();
      }
    },
    lanesInUse() {
      const lanes = [...unsettled].flatMap(([row, lostAt]) =>
        lostAt !== "ours" && now() - lostAt < shunMs ? [row.lane] : [],
      );
      return [...new Set(lanes)];
    },
    end() {
      abandon();
      for (const { lost } of storing.values()) lost();
      storing.clear();
    },
  };
}

/** Whoever does not compile may give a text. */
function laneLost(verb: string, id: string): PostboxError {
  return new PostboxError(
    "lane-lost",
    `${verb}() on the delivery of ${id} was not stored: its lane is another relay's by now, its lease ran out, or its receiver has ended; ` +
      "it is delivered again, so let the handler remember it with inbox(store)",
  );
}
