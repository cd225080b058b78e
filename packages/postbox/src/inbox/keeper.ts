import { ConfigError, PermanentError, PostboxError } from "../errors.js";
import { sleep } from "../internal/runtime.js";
import { storedError } from "../internal/stored-error.js";
import { createDrainLoop, type DrainLoop } from "../relay/drain-loop.js";
import { createSource } from "../relay/sending/source.js";
import { isTransient } from "../router/is-transient.js";
import type { Keeper, KeeperOptions, Verdict } from "../router/keeper.js";
import { type Arrival, type Aside, inboxOf, type Store } from "../store.js";
import type { Delivery, Receiver } from "../transport.js";
import { arrivalByPlace, arrivalOf, refusalOf } from "./arrivals.js";
import { boundedInbox, type Keeping } from "./bounded-inbox.js";
import type { CheckedInbox } from "./inbox-options.js";
import { Intake, type IntakeOptions } from "./intake.js";
import { receiveKept } from "./kept-receiver.js";

/**
 * Stores deliveries in the consumer's box that are not handled at once, and delivers them from there. `first` says
 * which are stored before they are handled: all, or only redelivered ones, which may have crashed a process.
 */
export function createKeeper<Tx>(
  store: Store<Tx>,
  first: "all" | "redelivered",
  inbox: CheckedInbox,
  options: KeeperOptions,
): Keeper {
  const { consumer, runtime, telemetry } = options;
  const { retentionMs, leaseMs } = inbox;
  const drainLoop = drainLoopOf(store, inbox, options);
  const source = createSource(
    { name: `the inbox of ${consumer}`, claimed: inboxOf(consumer), shunMs: leaseMs, runtime },
    drainLoop.run,
  );
  const bounded = boundedInbox(store.inbox, leaseMs + inbox.lockTimeoutMs, runtime);
  const intakeOptions: Omit<IntakeOptions, "inOrder" | "brokerParks"> = {
    ...inbox,
    ...options,
    inbox: bounded,
    kept: () => drainLoop.notified(),
  };

  /** With a receiver of whole topics, types that this consumer ignores are not worth a row each. */
  const isIgnored = ({ message }: Delivery, handled: ReadonlySet<string>) =>
    options.onUnknownType === "ignore" && !handled.has(message.type);

  /** Whether the receiver itself stores failures, as `outboxReceiver` does. Then this box stores none. */
  let stores = false;
  /** Whether the broker can park a message that this box cannot store. */
  let brokerParks = true;

  return {
    over(receiver) {
      checkWindow(consumer, receiver, retentionMs);
      stores = receiver.storesFailures === true;
      brokerParks = receiver.settles !== "in-order";
      const behind = {
        receiver,
        source,
        intake: () => new Intake({ ...intakeOptions, brokerParks, inOrder: first === "all" || !brokerParks }),
        isFirstKept: (delivery: Delivery, handled: ReadonlySet<string>) =>
          (first === "all" || (cameBefore(delivery) && !stores)) && !isIgnored(delivery, handled),
        runtime,
      };
      return {
        name: `${receiver.name}, behind the inbox of ${consumer}`,
        receive: (subscription, signal) => receiveKept(behind, subscription, signal),
      };
    },

    async take(delivery, verdict, signal) {
      if (stores || delivery.kept !== undefined) return undefined;
      let arrival: ReturnType<typeof arrivalOf>;
      try {
        arrival = arrivalOf({ ...delivery, consumer }, inbox);
      } catch {
        // It has no id. The broker parks it, or if it cannot, the message is identified by its place.
        const byPlace = brokerParks ? undefined : arrivalByPlace({ ...delivery, consumer });
        if (byPlace === undefined) return undefined;
        arrival = byPlace;
      }
      for (let failures = 1; ; failures++) {
        try {
          return await setAside({ bounded, remember: inbox.remember, drainLoop }, arrival, verdict);
        } catch (error) {
          // No store accepts it, so the broker has to keep it.
          if (error instanceof PermanentError) return undefined;
          telemetry({ name: "router.failed", consumer, error: PostboxError.from(error, "store-failed") });
          if (signal.aborted) throw error;
          await sleep(runtime, options.backoff(failures, runtime.random), signal);
          if (signal.aborted) throw error;
        }
      }
    },
  };
}

interface SettingAside extends Pick<CheckedInbox, "remember"> {
  readonly bounded: Keeping;
  readonly drainLoop: DrainLoop;
}

/** Sets a message aside in the box, as its verdict says, unless the box knows it already. */
async function setAside(
  { bounded, remember, drainLoop }: SettingAside,
  arrival: Arrival,
  verdict: Verdict,
): Promise<Verdict | "known"> {
  const aside = asideOf(verdict);
  const remembered = await bounded.setAside(arrival, aside, remember);
  if (remembered === "new" || (aside.to === "parked" && aside.anyway)) {
    if (verdict.to === "retry") drainLoop.dueIn(verdict.retryInMs);
    return verdict;
  }
  if (remembered === "duplicate") return "known";
  // Its id is known with other data, or it has become too old while it was tried. Unlike a duplicate, no other process
  // has stored or handled it, so it is parked here.
  const refusal = refusalOf(remembered, arrival);
  const text = `${refusal.message}; it had failed with: ${verdict.error.message}`;
  await bounded.setAside(arrival, { to: "parked", attempts: 1, error: storedError(text), anyway: true }, remember);
  return { to: "park", error: refusal };
}

/** Drains the consumer's box. */
function drainLoopOf<Tx>(store: Store<Tx>, inbox: CheckedInbox, options: KeeperOptions): DrainLoop {
  const { consumer, runtime, telemetry } = options;
  const { retentionMs, cleanIntervalMs, pollIntervalMs, leaseMs } = inbox;
  return createDrainLoop(store, {
    box: inboxOf(consumer),
    order: "key",
    holdParked: inbox.onPark === "hold",
    onExpired: "send",
    batchSize: 100,
    maxInFlight: 2 * options.concurrency,
    maxInFlightBytes: 16 * 1024 * 1024,
    maxAttempts: options.maxAttempts,
    pollIntervalMs,
    publishTimeoutMs: leaseMs / 4,
    leaseMs,
    keep: false,
    backoff: options.backoff,
    scheduled: false,
    // The first purge waits a little: a consumer that never ran before has no box until its drain loop has started.
    retention: { retentionMs, cleanIntervalMs, afterMs: leaseMs / 3 },
    runtime,
    telemetry,
  });
}

/** Whether it was delivered before: it may have crashed a process. */
function cameBefore({ attempt, redelivered }: Delivery): boolean {
  return redelivered === true || attempt > 1;
}

/**
 * Errors after which the message is parked even though the inbox knows its id, or cannot remember it: the inbox refused
 * the message for that reason, or the handler's own COMMIT has stored the id.
 */
const known: ReadonlySet<string> = new Set([
  "message-differs",
  "message-too-old",
  "message-id-missing",
  "transaction-ended",
]);

function asideOf(verdict: Verdict): Aside {
  const error = storedError(verdict.error.message);
  if (verdict.to === "retry") {
    const attempts = isTransient(verdict.error) ? 0 : 1;
    return { to: "wait", attempts, retryInMs: verdict.retryInMs, error };
  }
  return { to: "parked", attempts: 1, error, anyway: known.has(PostboxError.from(verdict.error).code) };
}

function checkWindow(consumer: string, { name, redeliveryWindowMs }: Receiver, retentionMs: number): void {
  if (redeliveryWindowMs === undefined || redeliveryWindowMs <= retentionMs) return;
  throw new ConfigError(
    "option-invalid",
    `the inbox of ${consumer} forgets after ${retentionMs} ms what ${name} may deliver again for ` +
      `${redeliveryWindowMs} ms; ` +
      "raise retentionMs to at least that",
    { path: "retentionMs" },
  );
}
