export { arbitraryMessage } from "./arbitrary-message.js";
export { crashSuite } from "./crash-suite.js";
export { type FaultPlan, faultySender, type SendFault } from "./faulty-sender.js";
export { type Freeze, type FreezeOptions, freezeAt } from "./freeze-at.js";
export { type Gate, gate, settlesWithin } from "./gate.js";
export { inboxSuite } from "./inbox-suite.js";
export type { LibrarySuiteOptions } from "./library-suite/library-harness.js";
export { librarySuite } from "./library-suite.js";
export { type ManualRuntime, type ManualRuntimeOptions, manualRuntime } from "./manual-runtime.js";
export { memoryStoreFeatures, memoryStoreHarness } from "./memory-store-harness.js";
export {
  memoryLogFeatures,
  memoryLogHarness,
  memoryTransportFeatures,
  memoryTransportHarness,
} from "./memory-transport-harness.js";
export { comparable, testMessage, testMessages } from "./messages.js";
export { type NotifierHarness, type NotifierSuiteOptions, notifierSuite } from "./notifier-suite.js";
export {
  type PostgresTestData,
  type PostgresTestDataOptions,
  postgresStoreFeatures,
  postgresTestData,
} from "./postgres-store-harness.js";
export { type RecordingOptions, type RecordingSender, recordingSender } from "./recording-sender.js";
export { relaySuite } from "./relay-suite.js";
export { type Cuttable, cuttable } from "./servers/cuttable.js";
export { type DebianRoot, debianRoot } from "./servers/debian-root.js";
export { type DisposableRabbitmq, type DisposableServer, disposable } from "./servers/disposable.js";
export { type Finding, type FoundService, findServices, type MissingService } from "./servers/find-services.js";
export { freePort } from "./servers/free-port.js";
export type { DebianPackage, Service } from "./servers/service.js";
export { arrivalOf, remember, remembering } from "./store-suite/remembering.js";
export type {
  StoreFeatures,
  StoreHarness,
  StoreHarnessContents,
  StoreSuiteOptions,
} from "./store-suite/store-harness.js";
export { storeSuite } from "./store-suite.js";
export { type TelemetryLog, telemetryLog } from "./telemetry-log.js";
export type {
  HarnessReceiverOptions,
  TransportFeatures,
  TransportHarness,
  TransportSuiteOptions,
} from "./transport-suite/transport-harness.js";
export { transportSuite } from "./transport-suite.js";
export { describeOn, describeOnEach } from "./vitest/describe-on.js";
export type { FoundServer, TestServer } from "./vitest/test-server.js";
