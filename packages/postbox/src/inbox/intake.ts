import { PermanentError, PostboxError } from "../errors.js";
import { sleep } from "../internal/runtime.js";
import { storedError } from "../internal/stored-error.js";
import { createWake } from "../internal/wake.js";
import type { KeeperOptions } from "../router/keeper.js";
import { endRevoked } from "../router/tracked-delivery.js";
import type { Arrival } from "../store.js";
import { aboutMessage } from "../telemetry/events.js";
import type { Delivery } from "../transport.js";
import { arrivalByPlace, arrivalOf, refusalOf } from "./arrivals.js";
import type { Keeping } from "./bounded-inbox.js";
import type { CheckedInbox } from "./inbox-options.js";

/** Stores deliveries in the box of their consumer, in the order in which they come, and acks them then. */
export interface Intake {
  /** Resolves when there is room for another. */
  take(delivery: Delivery): Promise<void>;
  /**
   * Until `end`; what is not stored by then is given back, and from `stop` on what cannot be stored at once. A call to the store that
   * takes until `giveUp` is given up: a stop does not wait for a store that gives no answer.
   */
  run(stop: AbortSignal, end: AbortSignal, giveUp: AbortSignal): Promise<void>;
}

export interface IntakeOptions extends CheckedInbox, KeeperOptions {
  readonly inbox: Keeping;
  /** Whether nothing may be stored before what came earlier. */
  readonly inOrder: boolean;
  /** Whether the broker can park a message, and deliver it later. */
  readonly brokerParks: boolean;
  /** Something was stored. */
  kept(): void;
}

export function createIntake(options: IntakeOptions): Intake {
  const { inbox, consumer, batchSize, runtime, telemetry, remember } = options;
  const arrived = createWake(runtime);
  const queue: Delivery[] = [];
  const waiters: (() => void)[] = [];
  let ended = false;

  const failed = (error: unknown) =>
    telemetry({ name: "router.failed", consumer, error: PostboxError.from(error, "store-failed") });
  /** A settlement that failed: of a delivery that the broker has taken back, that is no news. */
  const unsettled = ({ signal, message }: Delivery, error: unknown) => {
    if (signal?.aborted) telemetry({ name: "delivery.revoked", consumer, id: message.id });
    else failed(error);
  };

  async function ack(delivery: Delivery, told: "delivery.stored" | "delivery.acked"): Promise<void> {
    const { id } = delivery.message;
    try {
      await delivery.ack();
      telemetry({ name: told, consumer, id });
    } catch (error) {
      // It is delivered again, and known by then.
      unsettled(delivery, error);
      await delivery.release().catch(() => {});
    }
  }

  /** What can never be kept as it is, is parked: in the box, where that is possible. What could not be parked comes again. */
  async function park(delivery: Delivery, error: Error, giveUp: AbortSignal, arrival?: Arrival): Promise<void> {
    try {
      if (arrival === undefined) await delivery.park(error);
      else {
        const aside = { to: "parked", attempts: 0, error: storedError(error.message), anyway: true } as const;
        await inbox.setAside(arrival, aside, remember, giveUp);
        await ack(delivery, "delivery.acked");
      }
      telemetry({ name: "delivery.parked", consumer, ...aboutMessage(delivery.message), error });
    } catch (thrown) {
      unsettled(delivery, thrown);
      await delivery.release().catch(() => {});
    }
  }

  async function skip(delivery: Delivery): Promise<void> {
    telemetry({ name: "delivery.skipped", consumer, id: delivery.message.id });
    await ack(delivery, "delivery.acked");
  }

  /** Another process handles it right now: let others pass. */
  async function later(delivery: Delivery, error: PostboxError): Promise<void> {
    const retryInMs = options.backoff(1, runtime.random);
    const about = aboutMessage(delivery.message);
    telemetry({ name: "delivery.retried", consumer, ...about, attempt: delivery.attempt, retryInMs, error });
    await delivery.retry(retryInMs, error).catch(async (thrown) => {
      unsettled(delivery, thrown);
      await delivery.release().catch(() => {});
    });
  }

  /** Stores all of these, and settles each; or throws, and then none is settled. */
  async function keep(batch: readonly Delivery[], giveUp: AbortSignal): Promise<void> {
    const settling: (() => Promise<void>)[] = [];
    const arrivals: Arrival[] = [];
    const first = new Map<string, number>();
    for (const delivery of batch) {
      // Another process may have it by now, or will: what comes behind it in its stream was taken back as well.
      if (delivery.signal?.aborted) {
        settling.push(() => endRevoked(delivery, options));
        continue;
      }
      try {
        const arrival = arrivalOf({ ...delivery, consumer }, options);
        const before = first.get(arrival.id);
        if (before !== undefined) {
          // Twice in one batch: known without asking.
          const differs = arrivals[before]?.hash !== arrival.hash;
          settling.push(() =>
            differs ? park(delivery, refusalOf("differs", arrival), giveUp, arrival) : skip(delivery),
          );
          continue;
        }
        const index = arrivals.push(arrival) - 1;
        first.set(arrival.id, index);
        settling.push(() => {
          const found = remembered[index] ?? "new";
          if (found === "new") return ack(delivery, "delivery.stored");
          return found === "duplicate" ? skip(delivery) : park(delivery, refusalOf(found, arrival), giveUp, arrival);
        });
      } catch (error) {
        if (!(error instanceof PermanentError)) throw error;
        const byPlace = options.brokerParks ? undefined : arrivalByPlace({ ...delivery, consumer });
        settling.push(() => park(delivery, error, giveUp, byPlace));
      }
    }
    const remembered = arrivals.length === 0 ? [] : await inbox.keep(arrivals, remember, giveUp);
    if (runtime.failpoint) await runtime.failpoint("inbox.kept");
    if (remembered.includes("new")) options.kept();
    await Promise.all(settling.map((settle) => settle()));
  }

  function makeRoom(): void {
    for (const resolve of waiters.splice(0)) resolve();
  }

  async function release(deliveries: readonly Delivery[]): Promise<void> {
    await Promise.all(deliveries.map((delivery) => delivery.release().catch((error) => unsettled(delivery, error))));
  }

  return {
    async take(delivery) {
      if (ended) return release([delivery]);
      queue.push(delivery);
      arrived.wake();
      if (queue.length >= 2 * batchSize) await new Promise<void>((resolve) => waiters.push(resolve));
    },

    async run(stop, end, giveUp) {
      for (let failures = 0; !end.aborted; ) {
        if (queue.length === 0) {
          await arrived.wait(end);
          continue;
        }
        // After a failure one at a time: if one of them can never be stored, it is parked, and the others get through.
        const batch = queue.splice(0, failures === 0 ? batchSize : 1);
        makeRoom();
        try {
          await keep(batch, giveUp);
          failures = 0;
        } catch (error) {
          const [alone] = batch;
          if (batch.length > 1 && error instanceof PermanentError) {
            // One of them is the reason, and no pause mends that.
            queue.unshift(...batch);
            failures++;
            continue;
          }
          if (batch.length === 1 && alone !== undefined && error instanceof PermanentError && options.brokerParks) {
            await park(alone, error, giveUp);
            continue;
          }
          if (batch.length === 1 && alone !== undefined && isBusy(error) && !options.inOrder) {
            await later(alone, error);
            continue;
          }
          failed(error);
          // As long as the store does not answer, they wait here, and the broker with them.
          queue.unshift(...batch);
          await sleep(runtime, options.backoff(++failures, runtime.random), stop);
          if (!stop.aborted) continue;
          await release(queue.splice(0));
          // The receiver ends when what it is handing over was taken.
          makeRoom();
        }
      }
      ended = true;
      makeRoom();
      await release(queue.splice(0));
    },
  };
}

function isBusy(error: unknown): error is PostboxError {
  return error instanceof PostboxError && error.code === "inbox-busy";
}
