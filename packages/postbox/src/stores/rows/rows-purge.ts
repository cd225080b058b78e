import type { ArchivedMessage, Purged, PurgeOptions } from "../../admin.js";
import { type CheckedPurge, checkPurge } from "../admin-options.js";
import { consumerOf } from "../box-names.js";
import { changeBatch } from "../change-batches.js";
import type { StatusRow } from "./box-rows.js";
import type { RowsAccess } from "./over-rows.js";
import { copyOf } from "./stored-row.js";

/** `Store.purge`. */
export function rowsPurge(access: RowsAccess): (options: PurgeOptions) => Promise<Purged> {
  const purging = new Set<string>();
  return async (options) => {
    const checked = checkPurge(options);
    const { box } = checked;
    await access.read((rows) => rows.used(box));
    if (purging.has(box)) return { busy: true, removed: 0 };
    purging.add(box);
    try {
      return { busy: false, removed: await (consumerOf(box) === undefined ? removeDone : forget)(access, checked) };
    } finally {
      purging.delete(box);
    }
  };
}

async function removeDone({ read, change }: RowsAccess, { box, retentionMs, archive, signal }: CheckedPurge) {
  let removed = 0;
  while (!signal?.aborted) {
    const old = await read((rows) => {
      const until = rows.now() - retentionMs;
      const done = rows.used(box).rows("done");
      return done.filter(({ updatedAt }) => updatedAt <= until).slice(0, changeBatch);
    });
    if (old.length === 0) break;
    await archive?.(old.map(archived), signal ?? new AbortController().signal);
    await change((rows) => {
      for (const row of old) rows.used(box).remove(row);
    });
    removed += old.length;
  }
  return removed;
}

function forget({ change }: RowsAccess, { box, retentionMs }: CheckedPurge): Promise<number> {
  return change((rows) => rows.used(box).remembered.forget(rows.now() - retentionMs));
}

function archived({ message, position, attempts, createdAt, updatedAt }: StatusRow): ArchivedMessage {
  return {
    message: copyOf(message),
    position,
    attempts,
    createdAt: new Date(createdAt),
    publishedAt: new Date(updatedAt),
  };
}
