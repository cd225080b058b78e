export { defineTransactions, type MysqlTransactionsDefinition } from "../../transactions/define-mysql-transactions.js";
export type { Look } from "../../transactions/define-transactions.js";
export { type Mysql2Transaction, mysql2Transactions } from "../../transactions/mysql2.js";
export { type MysqlStore, type MysqlStoreOptions, mysqlStore } from "./mysql-store.js";
export type { MysqlPool } from "./own-connections.js";
export { type MigrationOptions, migrationSql } from "./schema.js";
