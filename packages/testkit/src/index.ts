export { arbitraryMessage } from "./arbitrary-message.js";
export { type Gate, gate, settlesWithin } from "./gate.js";
export { memoryStoreFeatures, memoryStoreHarness } from "./memory-store-harness.js";
export { comparable, testMessage, testMessages } from "./messages.js";
export { type DisposableServer, disposable } from "./servers/disposable.js";
export { type Finding, type FoundService, findServices, type MissingService } from "./servers/find-services.js";
export type { DebianPackage, Service } from "./servers/service.js";
export type {
  StoreFeatures,
  StoreHarness,
  StoreHarnessContents,
  StoreSuiteOptions,
} from "./store-suite/store-harness.js";
export { storeSuite } from "./store-suite.js";
export { describeOn, describeOnEach } from "./vitest/describe-on.js";
export type { FoundServer, TestServer } from "./vitest/test-server.js";
