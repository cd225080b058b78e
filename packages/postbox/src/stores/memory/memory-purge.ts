import type { ArchivedMessage, Purged, PurgeOptions } from "../../admin.js";
import { checkPurge } from "../admin-options.js";
import { consumerOf } from "../box-names.js";
import { changeBatch } from "../change-batches.js";
import type { StatusRow } from "./memory-box.js";
import type { MemoryData } from "./memory-database.js";
import { copyOf } from "./memory-lane.js";

/** `Store.purge` in memory. */
export async function purgeMemory(data: MemoryData, options: PurgeOptions): Promise<Purged> {
  const { box: name, retentionMs, archive, signal } = checkPurge(options);
  const box = data.existingBox(name);
  const consumer = consumerOf(name);
  const purged = { busy: box.cleaning, removed: 0 };
  if (box.cleaning) return purged;
  box.cleaning = true;
  try {
    const until = box.now - retentionMs;
    if (consumer !== undefined) purged.removed += data.inbox.forget(consumer, until);
    const old = (consumer === undefined ? box.rows("done") : []).filter(({ updatedAt }) => updatedAt <= until);
    for (let at = 0; at < old.length && !signal?.aborted; at += changeBatch) {
      const batch = old.slice(at, at + changeBatch);
      await archive?.(batch.map(archived), signal ?? new AbortController().signal);
      for (const row of batch) box.remove(row);
      purged.removed += batch.length;
    }
    return purged;
  } finally {
    box.cleaning = false;
  }
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
