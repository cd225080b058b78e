import { PermanentError, PostboxError } from "../errors.js";
import { storedError } from "../internal/stored-error.js";
import type { KeeperOptions } from "../router/keeper.js";
import { endRevoked } from "../router/tracked-delivery.js";
import type { Arrival, Remembered } from "../store.js";
import { aboutMessage } from "../telemetry/events.js";
import type { Delivery } from "../transport.js";
import { arrivalByPlace, arrivalOf, refusalOf } from "./arrivals.js";
import type { Keeping } from "./bounded-inbox.js";
import type { CheckedInbox } from "./inbox-options.js";

export interface ArrivedOptions extends CheckedInbox, KeeperOptions {
  readonly inbox: Keeping;
  /** Whether the broker can park a message, and redeliver it later. */
  readonly brokerParks: boolean;
}

/** A delivery, and what to store of it. */
export interface Sorted {
  /** Absent: nothing is stored, and `settle` knows the reason. */
  readonly arrival?: Arrival;
  /** Settles the delivery, once the store has answered what it knew of the message. Never rejects. */
  settle(found: Remembered, giveUp: AbortSignal): Promise<void>;
}

/** Settles and reports deliveries. Its methods never reject. */
export class Arrived {
  readonly #options: ArrivedOptions;

  constructor(options: ArrivedOptions) {
    this.#options = options;
  }

  /** What to store of a batch, in its order, each id once. */
  sort(batch: readonly Delivery[]): Sorted[] {
    const first = new Map<string, Arrival>();
    return batch.map((delivery) => this.#sortOne(delivery, first));
  }

  #sortOne(delivery: Delivery, first: Map<string, Arrival>): Sorted {
    const { consumer, brokerParks } = this.#options;
    // The broker has revoked this delivery, and those that follow it in its stream. Another process may have it by now,
    // or will get it.
    if (delivery.signal?.aborted) return { settle: () => endRevoked(delivery, this.#options) };
    try {
      const arrival = arrivalOf({ ...delivery, consumer }, this.#options);
      const before = first.get(arrival.id);
      if (before !== undefined) {
        // Twice in one batch: known without asking the store.
        const found = before.hash === arrival.hash ? "duplicate" : "differs";
        return { settle: (_, giveUp) => this.#settle(delivery, arrival, found, giveUp) };
      }
      first.set(arrival.id, arrival);
      return { arrival, settle: (found, giveUp) => this.#settle(delivery, arrival, found, giveUp) };
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      const byPlace = brokerParks ? undefined : arrivalByPlace({ ...delivery, consumer });
      return { settle: (_, giveUp) => this.park(delivery, error, giveUp, byPlace) };
    }
  }

  #settle(delivery: Delivery, arrival: Arrival, found: Remembered, giveUp: AbortSignal): Promise<void> {
    if (found === "new") return this.#ack(delivery, "delivery.stored");
    if (found !== "duplicate") return this.park(delivery, refusalOf(found, arrival), giveUp, arrival);
    const { consumer, telemetry } = this.#options;
    telemetry({ name: "delivery.skipped", consumer, id: delivery.message.id });
    return this.#ack(delivery, "delivery.acked");
  }

  async #ack(delivery: Delivery, told: "delivery.stored" | "delivery.acked"): Promise<void> {
    const { consumer, telemetry } = this.#options;
    try {
      await delivery.ack();
      telemetry({ name: told, consumer, id: delivery.message.id });
    } catch (error) {
      // The message is delivered again, and the store knows it then.
      await this.#notSettled(delivery, error);
    }
  }

  /**
   * Parks a message that can never be stored as it is. It is parked in the box if possible, otherwise by the broker. If
   * parking fails, it is delivered again.
   */
  async park(delivery: Delivery, error: Error, giveUp: AbortSignal, arrival?: Arrival): Promise<void> {
    const { consumer, inbox, remember, telemetry } = this.#options;
    try {
      if (arrival === undefined) await delivery.park(error);
      else {
        const aside = { to: "parked", attempts: 0, error: storedError(error.message), anyway: true } as const;
        await inbox.setAside(arrival, aside, remember, giveUp);
        await this.#ack(delivery, "delivery.acked");
      }
      telemetry({ name: "delivery.parked", consumer, ...aboutMessage(delivery.message), error });
    } catch (thrown) {
      await this.#notSettled(delivery, thrown);
    }
  }

  /** Another process is handling it: let other messages pass. */
  async later(delivery: Delivery, error: PostboxError): Promise<void> {
    const { backoff, consumer, runtime, telemetry } = this.#options;
    const retryInMs = backoff(1, runtime.random);
    const about = aboutMessage(delivery.message);
    telemetry({ name: "delivery.retried", consumer, ...about, attempt: delivery.attempt, retryInMs, error });
    await delivery.retry(retryInMs, error).catch((thrown) => this.#notSettled(delivery, thrown));
  }

  async release(deliveries: readonly Delivery[]): Promise<void> {
    await Promise.all(deliveries.map((delivery) => delivery.release().catch((error) => this.#tell(delivery, error))));
  }

  async #notSettled(delivery: Delivery, error: unknown): Promise<void> {
    this.#tell(delivery, error);
    await delivery.release().catch(() => {});
  }

  /** Reports a failed settlement, unless the broker has revoked the delivery. */
  #tell({ signal, message }: Delivery, error: unknown): void {
    const { consumer, telemetry } = this.#options;
    if (signal?.aborted) telemetry({ name: "delivery.revoked", consumer, id: message.id });
    else telemetry({ name: "router.failed", consumer, error: PostboxError.from(error, "store-failed") });
  }
}
