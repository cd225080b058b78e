import type { Runtime } from "../../internal/runtime.js";
import { runtimeWith } from "../../internal/runtime.js";
import { isUnavailable } from "../../internal/unavailable.js";
import type { Message } from "../../message/message.js";
import { callback, checkOptions, object, positive } from "../../options.js";
import type { SyncStore } from "../../store.js";
import { surroundingTransactions } from "../../transactions/surrounding-transaction.js";
import { migrationSql } from "./schema.js";
import { SqliteAccess } from "./sqlite-access.js";
import { sqliteAdmin } from "./sqlite-admin.js";
import { failing, sqliteBox } from "./sqlite-box.js";
import { isRefused, isUnreachable, type SqliteDatabase } from "./sqlite-database.js";
import { sqliteHealth } from "./sqlite-health.js";
import { sqliteInbox } from "./sqlite-inbox.js";
import { sqliteRetention } from "./sqlite-retention.js";
import { type SqliteTransaction, sqliteTransactions } from "./sqlite-transaction.js";

/** Options of `sqliteStore`. */
export interface SqliteStoreOptions<D extends SqliteDatabase> {
  /**
   * Opens the file, such as `() => new Database("shop.db")`. The store opens it for its own statements, for
   * `store.transaction`, and for `admin.list` and `admin.get`.
   */
  readonly open: () => D;
  /**
   * How long to wait while another connection or process writes. SQLite has one writer at a time. Defaults to 30,000.
   */
  readonly lockTimeoutMs?: number;
  /** @experimental Time and randomness. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

/** A store on SQLite. */
export interface SqliteStore<D extends SqliteDatabase = SqliteDatabase> extends SyncStore<SqliteTransaction<D>> {
  /** The path of the database. */
  readonly file: string;
  /** Closes its connections. Call it after everything that uses the store has stopped. */
  close(): void;
}

/**
 * A store in a file of SQLite, for any number of processes on one host. Its transactions are those of
 * `store.transaction`, or your own synchronous ones on the same file: inside of them, call `outbox.in(database)`. It
 * sets the journal to WAL, and its own connections to `synchronous = FULL`.
 *
 * @example
 * ```ts
 * const store = sqliteStore({ open: () => new Database("shop.db") });
 * await store.migrate();
 * ```
 */
export function sqliteStore<D extends SqliteDatabase>(options: SqliteStoreOptions<D>): SqliteStore<D> {
  checkOptions("sqliteStore", options, { open: callback, lockTimeoutMs: positive, runtime: object }, ["open"]);
  const { open, lockTimeoutMs = 30_000 } = options;
  const access = new SqliteAccess(open, runtimeWith(options.runtime), lockTimeoutMs);
  const transactions = sqliteTransactions(access);
  const { connectionOf } = transactions;

  const appendSync = (tx: SqliteTransaction<D>, box: string, messages: readonly Message[]): void =>
    access.transactionOn(connectionOf(tx), box).append(messages);

  return {
    name: "sqlite",
    file: access.file,
    ...surroundingTransactions<SqliteTransaction<D>>("sqlite", transactions as never, undefined),

    append: async (tx, box, messages) => appendSync(tx, box, messages),
    appendSync,
    cancel: async (tx, box, type, scheduleKey) => {
      const connection = connectionOf(tx);
      return access.transactionOn(connection, box).cancel(type, scheduleKey);
    },

    async tick(tx, schedule, claim) {
      const connection = connectionOf(tx);
      const now = access.runtime.now();
      connection.run(
        "INSERT INTO postbox_schedule (name, id, last_tick) VALUES (?, lower(hex(randomblob(16))), ?) ON CONFLICT DO NOTHING",
        schedule,
        Math.floor(now),
      );
      const claimed =
        claim !== undefined &&
        claim.tick > claim.after &&
        claim.tick <= now &&
        connection.run(
          "UPDATE postbox_schedule SET last_tick = ? WHERE name = ? AND last_tick = ?",
          claim.tick,
          schedule,
          claim.after,
        ) > 0;
      const found = connection.first<{ readonly id: string; readonly last_tick: number }>(
        "SELECT id, last_tick FROM postbox_schedule WHERE name = ?",
        schedule,
      );
      return { id: String(found?.id), lastTick: Number(found?.last_tick), now, claimed };
    },

    inbox: sqliteInbox(access, connectionOf),
    // Writers take turns, so none fails because of another.
    isConflict: () => false,
    isUnavailable: (error) => isUnavailable(error) || isUnreachable(error),
    isRefused,

    box: (name) => sqliteBox(access, name),
    admin: sqliteAdmin(access),
    purge: sqliteRetention(access),
    health: sqliteHealth(access),

    migrate: () =>
      failing("could not migrate", async () => {
        access.reader.all("PRAGMA journal_mode = WAL");
        await access.writers.write(access.reader, () => access.reader.database.exec(migrationSql()));
      }),

    close: () => access.close(),
  };
}
