import type { Backoff } from "../backoff.js";
import type { Runtime } from "../internal/runtime.js";
import { createWake } from "../internal/wake.js";
import type { Box, Lane, Row } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Outcome, Sender } from "../transport.js";
import { createBreaker } from "./breaker.js";
import { dispatch } from "./dispatch.js";
import { judge, queueBehind } from "./judge.js";
import type { Ownership } from "./ownership.js";
import { createReader } from "./reader.js";
import { createSettler } from "./settler.js";
import { createWindow } from "./window.js";

export interface EngineOptions {
  readonly box: Box;
  readonly boxName: string;
  readonly ownership: Ownership;
  readonly sender: Sender;
  readonly batchSize: number;
  readonly maxInFlight: number;
  readonly maxInFlightBytes: number;
  readonly maxAttempts: number;
  readonly pollIntervalMs: number;
  readonly publishTimeoutMs: number;
  readonly keep: boolean;
  readonly backoff: Backoff;
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
  gained(lanes: readonly Lane[]): void;
  lost(lanes: readonly number[]): void;
  /** There may be something new: looks at once. */
  hinted(): void;
  /** Sends nothing more of these lanes, and waits for what is on its way. False: it took too long, and they go on. */
  drain(lanes: readonly number[]): Promise<boolean>;
  /**
   * Until the signal is aborted; then it reads and sends nothing more, waits for what is on its way, settles that, and
   * resolves. Rejects for what no retry can mend.
   */
  run(signal: AbortSignal): Promise<void>;
}

export function createEngine(options: EngineOptions): Engine {
  const { boxName, ownership, sender, runtime, backoff } = options;
  const judgeOptions = { ...options, box: boxName, random: runtime.random };
  const window = createWindow(sender.keepsOrder);
  const breaker = createBreaker(backoff, runtime);
  const dispatching = createWake(runtime);
  const settling = createWake(runtime);
  /** Ends reading and sending; and, once nothing is on its way, settling. */
  const stop = new AbortController();
  const finish = new AbortController();
  let fatal: { readonly error: unknown } | undefined;
  let readFailures = 0;

  const settler = createSettler({
    ...options,
    settled(row, to) {
      window.settled(row, to);
      dispatching.wake();
      settling.wake();
    },
  });
  const reader = createReader({
    ...options,
    window,
    failed(error) {
      if (options.isFatal(error)) {
        fatal = { error };
        stop.abort();
        return 0;
      }
      const retryInMs = backoff(++readFailures, runtime.random);
      options.failed(error, retryInMs);
      return retryInMs;
    },
    arrived(held) {
      readFailures = 0;
      if (held.length > 0) settler.add(held.map((row) => queueBehind(row, "held", judgeOptions)));
      dispatching.wake();
    },
  });

  function report(row: Row, outcome: Outcome): void {
    if (!window.isOnItsWay(row)) return;
    const ahead = window.ahead(row);
    const judgement = judge(row, outcome, ahead, judgeOptions);
    const { to } = judgement.settlement;
    if (to === "wait") {
      const behind = window.failed(row).map((other) => queueBehind(other, ahead ?? "held", judgeOptions));
      settler.add([judgement, ...behind]);
    } else {
      if (to === "sent") window.sent(row);
      else window.parked(row);
      settler.add([judgement]);
    }
    dispatching.wake();
  }

  const sending = new Set<Promise<void>>();
  function send(batch: readonly Row[]): void {
    const done = dispatch(batch, sender, options.publishTimeoutMs, runtime, report).then(({ undecided, down }) => {
      sending.delete(done);
      const behind = window.undecided(undecided.filter((row) => window.isOnItsWay(row)));
      if (behind.length > 0) settler.add(behind.map((row) => queueBehind(row, "held", judgeOptions)));
      if (down === undefined) breaker.close();
      else options.failed(down, breaker.open());
      dispatching.wake();
    });
    sending.add(done);
  }

  async function sendLoop(): Promise<void> {
    const { maxInFlight, maxInFlightBytes, batchSize } = options;
    while (!stop.signal.aborted) {
      while (
        ownership.trusted() &&
        breaker.allows(sending.size) &&
        window.inFlight < maxInFlight &&
        // What is sent and not settled yet is bounded too: it would be sent again after a crash.
        settler.size < 2 * maxInFlight &&
        window.inFlightBytes < maxInFlightBytes
      ) {
        const most = Math.min(batchSize, maxInFlight - window.inFlight);
        const batch = window.take(most, maxInFlightBytes - window.inFlightBytes);
        if (batch.length === 0) break;
        send(batch);
      }
      reader.roomLeft();
      await dispatching.wait(stop.signal, breaker.waitMs());
    }
    while (sending.size > 0) await Promise.race(sending);
    finish.abort();
  }

  return {
    gained: (lanes) => reader.add(lanes.map(({ lane }) => lane)),
    hinted: () => reader.hinted(),

    lost(lanes) {
      for (const lane of lanes) {
        reader.remove(lane);
        window.drop(lane);
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
          // Some may have been lost meanwhile.
          reader.add(lanes.filter((lane) => ownership.epochs.has(lane)));
          return false;
        }
        await settling.wait(stop.signal, leftMs);
      }
      return true;
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
