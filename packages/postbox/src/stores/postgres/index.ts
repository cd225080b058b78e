export { defineTransactions, type Look, type TransactionsDefinition } from "../../transactions/define-transactions.js";
export { pgTransactions } from "../../transactions/pg.js";
export { type MigrationSqlOptions, migrationSql } from "./migrations.js";
export { type PostgresNotifierOptions, postgresNotifier } from "./postgres-notifier.js";
export type {
  OrderBlocker,
  PostgresHealthOptions,
  PostgresHealthProblem,
  VacuumHolder,
} from "./postgres-problems.js";
export type { PostgresPurged, PostgresPurgeOptions } from "./postgres-retention.js";
export { type PostgresStore, type PostgresStoreOptions, postgresStore } from "./postgres-store.js";
