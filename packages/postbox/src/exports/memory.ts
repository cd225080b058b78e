export { type MemoryDatabase, type MemoryDatabaseOptions, memoryDatabase } from "../stores/memory/memory-database.js";
export { type MemoryStore, type MemoryStoreOptions, memoryStore } from "../stores/memory/memory-store.js";
export type { MemoryTransaction } from "../stores/memory/memory-transaction.js";
export type { BoxContents } from "../stores/rows/box-rows.js";
export {
  type Binding,
  type MemoryBroker,
  type MemoryBrokerOptions,
  type MemoryReceiver,
  type MemoryReceiverOptions,
  type MemorySenderOptions,
  memoryBroker,
} from "../transports/memory/memory-broker.js";
export {
  type MemoryLog,
  type MemoryLogOptions,
  type MemoryLogReceiverOptions,
  memoryLog,
} from "../transports/memory/memory-log.js";
export type { ParkedMessage } from "../transports/memory/memory-queue.js";
export type { OnUnroutable, Unroutable } from "../transports/unroutable.js";
