export { type DisposableServer, disposable } from "./servers/disposable.js";
export { type Finding, type FoundService, findServices, type MissingService } from "./servers/find-services.js";
export type { DebianPackage, Service } from "./servers/service.js";
export { describeOn, describeOnEach } from "./vitest/describe-on.js";
export type { FoundServer, TestServer } from "./vitest/test-server.js";
