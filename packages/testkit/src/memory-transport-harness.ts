import { type MemoryReceiver, memoryBroker, memoryLog } from "postbox/memory";
import { faultySender } from "./faulty-sender.js";
import type { TransportFeatures, TransportHarness } from "./transport-suite/transport-harness.js";

/** What the memory transport claims in its suite. */
export const memoryTransportFeatures: TransportFeatures = {
  keepsOrder: true,
  unroutable: true,
  exactAttempts: true,
  settlesEach: true,
  selectsTypes: true,
  competing: true,
  streams: false,
  revokes: true,
  releaseUncounted: true,
  prefetch: true,
  prefetchBytes: true,
  singleActive: false,
  maxMessageBytes: false,
  routes: false,
  onUnroutable: true,
  unbinds: true,
  scopes: false,
  outage: true,
  reconnects: false,
  connectionBound: false,
  health: false,
  passwords: false,
  refusesParking: false,
  blocks: false,
  restarts: false,
};

/**
 * A memory broker for `transportSuite`.
 *
 * @example
 * ```ts
 * transportSuite({ name: "memory", features: memoryTransportFeatures, create: memoryTransportHarness });
 * ```
 */
export async function memoryTransportHarness(): Promise<TransportHarness> {
  const broker = memoryBroker();
  let away = false;
  return {
    sender: ({ onUnroutable = "park" } = {}) =>
      faultySender(broker.sender({ onUnroutable }), () => (away ? "down" : undefined)),
    receiver: (options) => broker.receiver(options),
    bind: async (queue, events) => broker.bind(queue, events),
    unbind: async (queue, events) => broker.unbind(queue, events),
    crash: async (receiver) => (receiver as MemoryReceiver).crash(),
    parked: async (queue) => broker.parked(queue).map(({ message, reason }) => ({ message, reason: reason.message })),
    async down() {
      away = true;
    },
    async up() {
      away = false;
    },
    async close() {},
  };
}

/** What the partitioned memory transport claims in its suite. */
export const memoryLogFeatures: TransportFeatures = {
  ...memoryTransportFeatures,
  unroutable: false,
  exactAttempts: false,
  settlesEach: false,
  selectsTypes: false,
  competing: false,
  streams: true,
  onUnroutable: false,
  unbinds: false,
  scopes: true,
};

/**
 * A memory log for `transportSuite`.
 *
 * @example
 * ```ts
 * transportSuite({ name: "memory log", features: memoryLogFeatures, create: memoryLogHarness });
 * ```
 */
export async function memoryLogHarness(): Promise<TransportHarness> {
  const log = memoryLog({ partitions: 1 });
  let away = false;
  return {
    sender: () => faultySender(log.sender(), () => (away ? "down" : undefined)),
    receiver({ queue, prefetch, prefetchBytes }) {
      const limits = { ...(prefetch && { prefetch }), ...(prefetchBytes && { prefetchBytes }) };
      return log.receiver({ group: queue, ...limits });
    },
    async bind(_, events, { streams = 1 } = {}) {
      for (const { topic } of events) log.topic(topic, streams);
    },
    crash: async (receiver) => (receiver as MemoryReceiver).crash(),
    setAvailable: async (topic, stream, available) =>
      log.setAvailable(topic, Number(stream.slice(stream.lastIndexOf("/") + 1)), available),
    parked: async () => [],
    async down() {
      away = true;
    },
    async up() {
      away = false;
    },
    async close() {},
  };
}
