// Conformance suites, for Vitest, of what a store, a transport, a transaction library or a notifier promises.
export { crashSuite } from "../crash-suite.js";
export { inboxSuite } from "../inbox-suite.js";
export type { LibrarySuiteOptions } from "../library-suite/library-harness.js";
export { librarySuite } from "../library-suite.js";
export { memoryStoreFeatures, memoryStoreHarness } from "../memory-store-harness.js";
export {
  memoryLogFeatures,
  memoryLogHarness,
  memoryTransportFeatures,
  memoryTransportHarness,
} from "../memory-transport-harness.js";
export { type MysqlLibrarySuiteOptions, mysqlLibrarySuite } from "../mysql-library-suite.js";
export { type NotifierHarness, type NotifierSuiteOptions, notifierSuite } from "../notifier-suite.js";
export { relaySuite } from "../relay-suite.js";
export { arrivalOf, remember, remembering } from "../store-suite/remembering.js";
export type {
  StoreFeatures,
  StoreHarness,
  StoreHarnessContents,
  StoreSuiteOptions,
} from "../store-suite/store-harness.js";
export { storeSuite } from "../store-suite.js";
export type {
  HarnessReceiverOptions,
  TransportFeatures,
  TransportHarness,
  TransportSuiteOptions,
} from "../transport-suite/transport-harness.js";
export { transportSuite } from "../transport-suite.js";
