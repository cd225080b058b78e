import { randomUUID } from "node:crypto";
import type { ArchivedMessage, Purged, PurgeOptions } from "../../admin.js";
import { checkPurge } from "../admin-options.js";
import { consumerOf } from "../box-names.js";
import type { MessageRecord } from "../message-record.js";
import { purgeBatches } from "../purge-batches.js";
import type { SqliteAccess } from "./sqlite-access.js";
import { failing } from "./sqlite-box.js";
import { messageColumns, messageOf } from "./sqlite-rows.js";

/** Small enough not to delay other writers, who wait for each batch. */
const batch = 500;
const leaseMs = 60_000;
/** The size limit of one batch for an archive. A single message may be larger. */
const mostArchivedBytes = 16 * 1024 * 1024;

const oldSql = `SELECT position, attempts, created_at, updated_at, ${messageColumns}
  FROM postbox_message INDEXED BY postbox_sent
  WHERE box = ? AND status = 'done' AND updated_at <= ? ORDER BY updated_at LIMIT ?`;

type OldRecord = MessageRecord & Readonly<Record<"position" | "attempts" | "created_at" | "updated_at", number>>;

/** `Store.purge` in SQLite. It works in small batches and may stop after any of them; the next call continues. */
export function sqliteRetention(access: SqliteAccess): (options: PurgeOptions) => Promise<Purged> {
  return async (options) => {
    const { box, retentionMs, archive, signal } = checkPurge(options);
    const number = access.read(() => access.usedBox(box));
    const cleaner = randomUUID();

    /** Takes or renews the right to purge. */
    const mayGoOn = async (): Promise<boolean> => {
      if (signal?.aborted) return false;
      return access.change((connection) => {
        const now = access.now();
        const sql = `UPDATE postbox_box SET cleaner = ?, cleaner_until = ?
          WHERE number = ? AND (cleaner IS NULL OR cleaner = ? OR cleaner_until < ?)`;
        return connection.run(sql, cleaner, now + leaseMs, number, cleaner, now) > 0;
      });
    };

    const remove = (sql: string, rows: readonly number[]): Promise<number> =>
      access.change((connection) => connection.run(sql, number, JSON.stringify(rows)));

    async function nextSent() {
      const before = access.now() - retentionMs;
      const found = access.read(() => {
        const rows: OldRecord[] = [];
        let bytes = 0;
        for (const row of access.reader.each<OldRecord>(oldSql, number, before, batch)) {
          rows.push(row);
          bytes += archive === undefined ? 0 : (messageOf(row).message.data.byteLength ?? 0);
          if (bytes >= mostArchivedBytes) break;
        }
        return rows;
      });
      if (found.length === 0) return undefined;
      const positions = found.map(({ position }) => Number(position));
      const sql = `DELETE FROM postbox_message
        WHERE box = ? AND status = 'done' AND position IN (SELECT value FROM json_each(?))`;
      const messages = archive === undefined ? {} : { messages: found.map(archivedFrom) };
      return { ...messages, remove: () => remove(sql, positions) };
    }

    async function nextHandled() {
      const before = access.now() - retentionMs;
      const found = access.read(() =>
        access.reader.all<{ readonly number: number }>(
          "SELECT number FROM postbox_handled INDEXED BY postbox_since WHERE box = ? AND since < ? ORDER BY since LIMIT ?",
          number,
          before,
          batch,
        ),
      );
      if (found.length === 0) return undefined;
      const sql = "DELETE FROM postbox_handled WHERE box = ? AND number IN (SELECT value FROM json_each(?))";
      return {
        remove: () =>
          remove(
            sql,
            found.map((row) => Number(row.number)),
          ),
      };
    }

    return failing(`could not purge the box ${box}`, async () => {
      if (!(await mayGoOn())) return { busy: signal?.aborted !== true, removed: 0 };
      const { removeAll } = purgeBatches({ runtime: access.runtime, mayGoOn, archive, signal });
      try {
        if (consumerOf(box) === undefined) return { busy: false, removed: await removeAll(nextSent) };
        // Before the ids are deleted: a message that old is refused from now on.
        await access.change((connection) =>
          connection.run(
            "UPDATE postbox_box SET forgotten_until = max(forgotten_until, ?) WHERE number = ?",
            access.now() - retentionMs,
            number,
          ),
        );
        return { busy: false, removed: await removeAll(nextHandled) };
      } finally {
        await access.change((connection) =>
          connection.run("UPDATE postbox_box SET cleaner = NULL WHERE number = ? AND cleaner = ?", number, cleaner),
        );
      }
    });
  };
}

function archivedFrom(record: OldRecord): ArchivedMessage {
  return {
    message: messageOf(record).message,
    position: Number(record.position),
    attempts: Number(record.attempts),
    createdAt: new Date(Number(record.created_at)),
    publishedAt: new Date(Number(record.updated_at)),
  };
}
