import type { Backoff } from "../backoff.js";
import { PostboxError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import { createWake } from "../internal/wake.js";
import type { Box, Order, Row, Settlement, TakenLane } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";
import { decide, expiry, holdsNothingBack, queueBehind, sentEvent, unreadable } from "./deciding/decide.js";
import { countCrashes } from "./isolation/count-crashes.js";
import { createDoubt, createSuspicion, hopeless } from "./isolation/suspicion.js";
import { createWindow } from "./ordering/window.js";
import type { Ownership } from "./owning/ownership.js";
import { Reader } from "./reading/reader.js";
import { createBreaker } from "./sending/breaker.js";
import { createOrderedSettling } from "./settling/ordered-settling.js";
import { createSettler } from "./settling/settler.js";
import type { Dispatched, RowOutcome, Target } from "./target.js";

export interface EngineOptions {
  readonly box: Box;
  readonly boxName: string;
  readonly ownership: Ownership;
  readonly target: Target;
  readonly order: Order;
  readonly batchSize: number;
  readonly maxInFlight: number;
  readonly maxInFlightBytes: number;
  readonly maxAttempts: number;
  readonly holdParked: boolean;
  readonly expired: "park" | "drop" | "send";
  readonly pollIntervalMs: number;
  readonly publishTimeoutMs: number;
  readonly keep: boolean;
  readonly backoff: Backoff;
  /** How long to wait after so many failures of the store in a row. */
  storeBackoff(failures: number): number;
  readonly isPermanent: (error: Error) => boolean;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
  /** Tells of a failure that is tried again after `retryInMs`. */
  failed(error: unknown, retryInMs: number): void;
  /** Whether no retry can mend this. */
  isFatal(error: unknown): boolean;
}

/** Moves the rows of whatever lanes it is given: reading, sending and settling go on side by side. */
export interface Engine {
  gained(lanes: readonly TakenLane[]): void;
  lost(lanes: readonly number[]): void;
  /** The lease stands again: what was read goes on its way. */
  resume(): void;
  /** There may be something new: looks at once. */
  notified(): void;
  /** Something waits that is due in `ms`: looks for it then. */
  dueIn(ms: number): void;
  /**
   * Sends nothing more of these lanes, and waits for what is on its way. Answers with those where nothing is any more; the
   * others took too long, and go on.
   */
  drain(lanes: readonly number[]): Promise<readonly number[]>;
  /**
   * Until the signal is aborted; then it reads and sends nothing more, waits for what is on its way, settles that, and
   * resolves. Rejects for what no retry can mend.
   */
  run(signal: AbortSignal): Promise<void>;
}

export function createEngine(options: EngineOptions): Engine {
  const { boxName, ownership, target, runtime } = options;
  const isTotal = options.order === "total";
  const oneByOne = isTotal || target.oneByOne;
  const decideOptions = { ...options, box: boxName, inPlace: isTotal, random: runtime.random };
  const suspicion = createSuspicion(3 * options.maxInFlight);
  const window = createWindow({
    keepsOrder: target.keepsOrder && !isTotal,
    order: options.order,
    seen: (row) => suspicion.mark(row),
  });
  const breaker = createBreaker(options);
  const dispatching = createWake(runtime);
  const settling = createWake(runtime);
  /** Ends reading and sending; and, once nothing is on its way, settling. */
  const stop = new AbortController();
  const finish = new AbortController();
  let fatal: { readonly error: unknown } | undefined;
  const doubt = createDoubt();

  const settler = createSettler({
    ...options,
    alone: options.order === "none",
    settled({ row, ...became }) {
      const holds = became.to === "parked" && became.hold === true;
      stored(row, holds ? "wait" : became.to, became.to === "wait" ? became.retryInMs : undefined);
    },
    roomLeft() {
      dispatching.wake();
      settling.wake();
    },
    appendedNothing: (writer) => reader.appendedNothing(writer),
  });
  const ordered = createOrderedSettling(settler, window);
  const reader = new Reader({
    ...options,
    window,
    failed(error, failures) {
      if (options.isFatal(error)) {
        fatal = { error };
        stop.abort();
        return 0;
      }
      const retryInMs = options.storeBackoff(failures);
      options.failed(error, retryInMs);
      return retryInMs;
    },
    arrived(held) {
      if (held.length > 0) ordered.add(held.map((row) => queueBehind(row, "held", decideOptions)));
      dispatching.wake();
    },
    drawn: (lanes, position) => suspicion.bound(lanes, position),
    serverChanged(server) {
      options.telemetry({ name: "relay.server-changed", box: boxName, server });
      ownership.startAnew();
    },
  });

  /** What became of it is committed. */
  function stored(row: Row, to: Settlement["to"], retryInMs?: number): void {
    window.settled(row, to);
    target.stored?.(row);
    if (retryInMs !== undefined) reader.dueIn(retryInMs);
    // The next ones that wait behind it can be read now.
    else if (row.waiting) reader.dueIn(0);
    dispatching.wake();
    settling.wake();
  }

  function report(row: Row, outcome: RowOutcome): void {
    if (!window.isOnItsWay(row)) {
      // A confirmation that came after its timeout: the row is still ours, and need not be sent again.
      if (outcome.status !== "sent" || !window.sentAfterAll(row)) return;
      ordered.add([decide(row, outcome, undefined, decideOptions)]);
      doubt.sent();
      return;
    }
    if (outcome.status === "released") {
      window.undecided([row]);
      dispatching.wake();
      return;
    }
    if (outcome.status === "handled") {
      window.sent(row);
      doubt.sent();
      stored(row, "sent");
      options.telemetry(sentEvent(row, boxName));
      return;
    }
    const ahead = window.ahead(row);
    const decision = decide(row, outcome, ahead, decideOptions);
    const { settlement } = decision;
    if (settlement.to === "pending") {
      window.failed(row);
      reader.readAgain(row.position, decision.againInMs ?? 0);
      ordered.add([decision]);
    } else if (settlement.to === "wait" || (settlement.to === "parked" && settlement.hold)) {
      const behind = window.failed(row).map((other) => queueBehind(other, ahead ?? "held", decideOptions));
      ordered.add([decision, ...behind]);
    } else {
      if (settlement.to === "sent") window.sent(row);
      else window.parked(row, holdsNothingBack(row, outcome));
      ordered.add([decision]);
    }
    ordered.landed([row]);
    if (outcome.status === "sent") doubt.sent();
    dispatching.wake();
  }

  /** Whether a row ends without being sent: it cannot be read, or has expired. Also reports it then. */
  function endsHere(row: Row): boolean {
    const end = unreadable(row) ?? (options.expired === "send" ? undefined : expiry(row, runtime));
    if (end !== undefined) report(row, end);
    return end !== undefined;
  }

  async function attempt(batch: readonly Row[]): Promise<Dispatched> {
    try {
      await countCrashes(batch, options);
    } catch (error) {
      return { undecided: batch, down: PostboxError.from(error) };
    }
    // That may have taken long.
    if (!ownership.trusted()) return { undecided: batch };
    // Some may have turned out to be another's.
    const ours = batch.filter((row) => window.isOnItsWay(row));
    try {
      return await target.handOver(ours, report, ownership.epochs);
    } catch (error) {
      return { undecided: ours, down: PostboxError.from(error) };
    }
  }

  const sending = new Set<Promise<void>>();
  function send(batch: readonly Row[]): void {
    const done = attempt(batch).then(({ undecided, down, died }) => {
      sending.delete(done);
      const unknown = undecided.filter((row) => window.isOnItsWay(row));
      const behind = window.undecided(unknown, died && doubt.died(unknown));
      if (behind.length > 0) ordered.add(behind.map((row) => queueBehind(row, "held", decideOptions)));
      ordered.landed(unknown);
      if (down === undefined) breaker.close();
      else options.failed(down, breaker.open(down));
      dispatching.wake();
    });
    sending.add(done);
  }

  async function sendLoop(): Promise<void> {
    const { maxInFlight, maxInFlightBytes, batchSize } = options;
    while (!stop.signal.aborted) {
      // Before it is asked: a delay that ended in between would be waited for, and nobody would end that.
      const waitMs = breaker.waitMs();
      while (
        ownership.trusted() &&
        !ownership.paused() &&
        breaker.allows(sending.size) &&
        !(oneByOne && sending.size > 0) &&
        window.inFlight < maxInFlight &&
        // What is sent and not settled yet is bounded too: it would be sent again after a crash.
        settler.size < 2 * maxInFlight &&
        window.inFlightBytes < maxInFlightBytes
      ) {
        const most = doubt.none && !oneByOne ? Math.min(batchSize, target.most(), maxInFlight - window.inFlight) : 1;
        const batch = window.take(most, maxInFlightBytes - window.inFlightBytes, doubt.none, settler.size === 0);
        const [first] = batch;
        if (first === undefined) break;
        const end = hopeless(first);
        if (end !== undefined) {
          report(first, end);
          continue;
        }
        const worth = batch.filter((row) => !endsHere(row));
        if (worth.length > 0) send(worth);
      }
      reader.roomLeft();
      await dispatching.wait(stop.signal, waitMs);
    }
    while (sending.size > 0) await Promise.race(sending);
    await target.idle?.();
    finish.abort();
  }

  return {
    gained(lanes) {
      suspicion.add(lanes.filter(({ clean }) => !clean).map(({ lane }) => lane));
      reader.add(lanes.map(({ lane }) => lane));
    },
    resume: () => dispatching.wake(),
    notified: () => reader.notified(),
    dueIn: (ms) => reader.dueIn(ms),

    lost(lanes) {
      for (const lane of lanes) {
        reader.remove(lane);
        suspicion.remove(lane);
        window.drop(lane);
        ordered.drop(lane);
        settler.drop(lane);
      }
      dispatching.wake();
      settling.wake();
    },

    async drain(lanes) {
      for (const lane of lanes) {
        reader.remove(lane);
        window.forget(lane);
      }
      const deadline = runtime.monotonic() + 2 * options.publishTimeoutMs;
      while (!lanes.every((lane) => window.isIdle(lane))) {
        const leftMs = deadline - runtime.monotonic();
        if (leftMs <= 0 || stop.signal.aborted) {
          // Some may have been lost meanwhile. An order of everything needs all that are left.
          const goesOn = (lane: number) => ownership.epochs.has(lane) && (isTotal || !window.isIdle(lane));
          reader.add(lanes.filter(goesOn));
          return lanes.filter((lane) => !goesOn(lane));
        }
        await settling.wait(stop.signal, leftMs);
      }
      return lanes.filter((lane) => window.isIdle(lane));
    },

    async run(signal) {
      const onAbort = () => stop.abort();
      signal.addEventListener("abort", onAbort, { once: true });
      if (signal.aborted) stop.abort();
      try {
        await Promise.all([reader.run(stop.signal), sendLoop(), settler.run(finish.signal)]);
      } finally {
        signal.removeEventListener("abort", onAbort);
      }
      if (fatal !== undefined) throw fatal.error;
    },
  };
}
