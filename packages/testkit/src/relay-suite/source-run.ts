import { type OutboxReceiverOptions, outboxReceiver, type Store } from "postbox";
import type { Runtime } from "postbox/store";
import type { Delivery } from "postbox/transport";
import { onTestFinished } from "vitest";
import { gate } from "../gate.js";
import { patiently } from "../patience.js";
import { type TelemetryLog, telemetryLog } from "../telemetry-log.js";
import { receiverTiming } from "./relay-run.js";

/** A consumer of a source that lets the test settle the deliveries. */
export interface SourceRun {
  readonly log: TelemetryLog;
  readonly deliveries: readonly Delivery[];
  ids(): string[];
  /** The delivery number `count`, once it is handed over. */
  until(count: number): Promise<Delivery>;
  /** Stops it, and resolves when it has stopped. */
  stop(): Promise<void>;
}

export interface SourceRunOptions extends OutboxReceiverOptions {
  /** Called with each delivery; the next one is handed over after it. Defaults to nothing. */
  readonly take?: (delivery: Delivery) => Promise<void> | void;
}

export function consumeFrom<Tx>(store: Store<Tx>, { take, ...options }: SourceRunOptions = {}): SourceRun {
  const log = telemetryLog();
  const deliveries: Delivery[] = [];
  let arrived = gate();
  const controller = new AbortController();
  const source = outboxReceiver(store, { ...receiverTiming, ...options, telemetry: log.telemetry });
  const subscription = {
    consumer: "facts",
    events: [],
    async deliver(delivery: Delivery) {
      deliveries.push(delivery);
      arrived.open();
      arrived = gate();
      await take?.(delivery);
    },
  };
  const received = source.receive(subscription, controller.signal);
  // The caller of `stop` gets the error.
  received.catch(() => {});
  // A fact that fails must leave the box to the next one.
  onTestFinished(() => {
    controller.abort();
    for (const delivery of deliveries) delivery.release().catch(() => {});
  });
  const ids = () => deliveries.map(({ message }) => message.id);
  return {
    log,
    deliveries,
    ids,
    async until(count) {
      const enough = (async () => {
        while (deliveries.length < count) await arrived.opened;
      })();
      await patiently(enough, () => {
        const seen = log.events
          .map((event) => ("error" in event ? `${event.name} (${event.error.message})` : event.name))
          .join(", ");
        return `${count} deliveries; there were ${ids().join(", ") || "none"}, and ${seen || "no events"}`;
      });
      return deliveries[count - 1] as Delivery;
    },
    async stop() {
      controller.abort();
      await received;
    },
  };
}

/** A process that can crash at any moment: then its timers no longer fire, and nothing passes a failpoint. */
export function mortalRuntime(): { readonly runtime: Partial<Runtime>; die(): void } {
  let dead = false;
  return {
    runtime: {
      schedule(task, ms) {
        const timer = setTimeout(() => dead || task(), ms);
        return () => clearTimeout(timer);
      },
      failpoint: () => (dead ? new Promise(() => {}) : undefined),
    },
    die: () => {
      dead = true;
    },
  };
}
