export type { SyncOutbox, SyncOutboxPublisher } from "../../outbox/outbox.js";
export type { SyncStore } from "../../store.js";
export { migrationSql } from "./schema.js";
export type { SqliteDatabase } from "./sqlite-database.js";
export { type SqliteStore, type SqliteStoreOptions, sqliteStore } from "./sqlite-store.js";
export type { SqliteTransaction } from "./sqlite-transaction.js";
