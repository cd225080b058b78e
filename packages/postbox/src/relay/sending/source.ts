import { PostboxError } from "../../errors.js";
import { type Following, following } from "../../internal/following.js";
import type { Runtime } from "../../internal/runtime.js";
import { soundError } from "../../internal/sound-error.js";
import { isTransient } from "../../router/is-transient.js";
import { settleOnce } from "../../settle-once.js";
import type { Row } from "../../store.js";
import type { Delivery, Kept, Receiver, Subscription } from "../../transport.js";
import type { Dispatched, RowOutcome, Target } from "../target.js";

/** Runs an engine with a target until the signal is aborted and every row that was taken is settled. */
export type RunDrainLoop = (target: Target, signal: AbortSignal, reached?: () => void) => Promise<void>;

/** A row of a box that its consumer removes itself. */
export interface Claim extends Kept {
  readonly row: Row;
  /** The epoch of its lane at the hand-over. */
  readonly epoch: number;
}

export interface SourceOptions {
  readonly name: string;
  /** The name of the box if its consumer removes rows itself. Then each delivery carries its claim. */
  readonly claimed?: string;
  /** If a lane is lost while the consumer still handles rows of it, other relays should take it for this long. */
  readonly shunMs: number;
  readonly runtime: Runtime;
}

/** Makes a receiver of a box: each row becomes a delivery, and how the delivery is settled is stored on the row. */
export function createSource(options: SourceOptions, drain: RunDrainLoop): Receiver {
  return {
    name: options.name,
    storesFailures: true,
    async receive(subscription, signal) {
      const stop = following(signal);
      const target = new SourceTarget(options, subscription, stop);
      try {
        await drain(target, stop.signal, () => subscription.ready?.());
      } finally {
        stop.abort();
        target.end();
      }
      if (target.failure !== undefined) throw target.failure.cause;
    },
  };
}

type Report = (row: Row, outcome: RowOutcome) => void;

/** Hands rows to a consumer as deliveries. */
class SourceTarget implements Target {
  readonly #options: SourceOptions;
  readonly #subscription: Subscription;
  readonly #stop: Following;
  /** Rows that the consumer has not settled: `ours`, or when their lane was lost. */
  readonly #unsettled = new Map<Row, "ours" | number>();
  /** Rows that the consumer has settled, until that is stored. */
  readonly #storing = new Map<Row, { stored(): void; lost(): void }>();
  #emptied = () => {};
  #abandoned = false;
  /** Ends the hand-over in progress if the run is stopping and the consumer has settled the row. */
  #letGo = () => {};
  /** Why the consumer takes no more deliveries. */
  failure: { readonly cause: unknown } | undefined;
  readonly name: string;
  readonly keepsOrder = false;
  readonly oneByOne = true;

  constructor(options: SourceOptions, subscription: Subscription, stop: Following) {
    this.#options = options;
    this.#subscription = subscription;
    this.#stop = stop;
    this.name = options.name;
    stop.signal.addEventListener("abort", () => this.#letGo(), { once: true });
  }

  most(): number {
    return 1;
  }

  async handOver([row]: readonly Row[], report: Report, epochs: ReadonlyMap<number, number>): Promise<Dispatched> {
    const epoch = row && epochs.get(row.lane);
    if (row !== undefined && epoch !== undefined && !this.#stop.signal.aborted)
      await this.#handOver(row, report, epoch);
    else if (row !== undefined) report(row, { status: "released" });
    return { undecided: [] };
  }

  async idle(): Promise<void> {
    if (this.#unsettled.size === 0 || this.#abandoned) return;
    await new Promise<void>((resolve) => {
      this.#emptied = resolve;
    });
  }

  stored(row: Row): void {
    this.#storing.get(row)?.stored();
    this.#storing.delete(row);
  }

  lost(lanes: readonly number[]): void {
    const gone = new Set(lanes);
    for (const row of this.#unsettled.keys()) if (gone.has(row.lane)) this.#unsettled.set(row, this.#now);
    for (const [row, { lost }] of this.#storing) {
      if (!gone.has(row.lane)) continue;
      this.#storing.delete(row);
      lost();
    }
  }

  lanesInUse(): readonly number[] {
    const { shunMs } = this.#options;
    const lanes = [...this.#unsettled].flatMap(([{ lane }, lostAt]) =>
      lostAt !== "ours" && this.#now - lostAt < shunMs ? [lane] : [],
    );
    return [...new Set(lanes)];
  }

  /** The lanes are given back: what is not stored by now will not be. */
  end(): void {
    this.#abandon();
    for (const { lost } of this.#storing.values()) lost();
    this.#storing.clear();
  }

  get #now(): number {
    return this.#options.runtime.monotonic();
  }

  /**
   * Resolves when the consumer has taken the row. At a stop, it resolves when the consumer has settled it, since the
   * consumer may wait for a settlement that is never stored.
   */
  #handOver(row: Row, report: Report, epoch: number): Promise<void> {
    this.#unsettled.set(row, "ours");
    return new Promise((resolve) => {
      this.#letGo = () => {
        if (this.#stop.signal.aborted && !this.#unsettled.has(row)) resolve();
      };
      const taken = (async () => this.#subscription.deliver(this.#deliveryOf(row, report, epoch)))();
      taken
        .catch((cause: unknown) => {
          this.#abandon();
          this.failure ??= { cause };
          this.#stop.abort();
        })
        .finally(resolve);
    });
  }

  #deliveryOf(row: Row, report: Report, epoch: number): Delivery {
    const { claimed } = this.#options;
    const { message } = row;
    const claim: Claim | undefined =
      claimed === undefined ? undefined : { box: claimed, row, epoch, handled: false, committed: false };
    const once = settleOnce(message.id);
    const settle = async (verb: string, outcome: RowOutcome) => {
      once(verb);
      await this.#settle(row, verb, outcome, report, claim);
    };
    return {
      message,
      attempt: row.attempts + 1,
      ...(claim && { kept: claim }),
      // A row from `wait` leaves a hold behind, which only a settle ends.
      ack: () => settle("ack", { status: claim?.committed && !row.waiting ? "handled" : "sent" }),
      retry: (delayMs, error = new Error("its consumer asked for another try")) =>
        settle("retry", {
          status: "failed",
          error: soundError(error),
          retryInMs: delayMs,
          ...(isTransient(error) && { uncounted: true }),
        }),
      park: (error) => settle("park", { status: "rejected", error: soundError(error) }),
      release: async () => {
        once("release");
        // Nothing is stored. On a lost lane, another relay has the row already.
        if (this.#unsettled.get(row) === "ours") report(row, { status: "released" });
        this.#close(row);
      },
    };
  }

  /** Resolves when the outcome is stored. Rejects if the lane was lost before. */
  #settle(row: Row, verb: string, outcome: RowOutcome, report: Report, claim: Claim | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const lost = () => reject(laneLost(verb, row.message.id));
      if (this.#unsettled.get(row) === "ours") {
        this.#storing.set(row, { stored: resolve, lost });
        report(row, outcome);
      } else if (claim?.committed && verb === "ack") {
        // The handler has removed the row from the box, whichever relay owns its lane now.
        resolve();
      } else lost();
      this.#close(row);
    });
  }

  #close(row: Row): void {
    this.#unsettled.delete(row);
    this.#letGo();
    if (this.#unsettled.size === 0) this.#emptied();
  }

  /** As in a crash: waits for no handler, and ignores the outcomes that are still to come. */
  #abandon(): void {
    this.#abandoned = true;
    for (const row of this.#unsettled.keys()) this.#unsettled.set(row, this.#now);
    this.#emptied();
  }
}

function laneLost(verb: string, id: string): PostboxError {
  return new PostboxError(
    "delivery-revoked",
    `${verb}() on the delivery of ${id} was not stored: another relay owns its lane now, ` +
      "its lease expired, or its receiver has ended; " +
      "it is delivered again, so let the handler remember it with inbox(store)",
  );
}
