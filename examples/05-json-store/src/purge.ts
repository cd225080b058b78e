import type { Purged, PurgeOptions } from "postbox/admin";
import { type CheckedPurge, checkPurge, consumerOf, requireBox } from "postbox/store";
import type { JsonDatabase } from "./database.js";
import { messageOf, rowsOf } from "./rows.js";
import { type BoxState, emptyBox, type StoredRow } from "./state.js";

/** How many rows are archived and deleted at a time. */
const batch = 500;

/** The boxes that a store of this process purges at this moment. */
const purging = new Set<string>();

/** Removes what was done longer ago than `retentionMs`; of an inbox, what it has remembered for longer. */
export async function purge(database: JsonDatabase, options: PurgeOptions): Promise<Purged> {
  const checked = checkPurge(options);
  requireBox(checked.box);
  const place = `${database.file} ${checked.box}`;
  if (purging.has(place)) return { busy: true, removed: 0 };
  purging.add(place);
  try {
    const remove = consumerOf(checked.box) === undefined ? removeDone : forget;
    return { busy: false, removed: await remove(database, checked) };
  } finally {
    purging.delete(place);
  }
}

async function removeDone(database: JsonDatabase, { box: name, retentionMs, archive, ...options }: CheckedPurge) {
  const { signal = new AbortController().signal } = options;
  let removed = 0;
  while (!signal.aborted) {
    const box = (await database.committed()).boxes.get(name) ?? emptyBox();
    const rows = doneBefore(box, Date.now() - retentionMs).slice(0, batch);
    if (rows.length === 0) break;
    await archive?.(rows.map(archived), signal);
    await database.change(name, (box) => {
      for (const { position } of rows) box.rows.delete(position);
    });
    removed += rows.length;
  }
  return removed;
}

function doneBefore(box: BoxState, until: number): StoredRow[] {
  return rowsOf(box, "done").filter(({ publishedAt = 0 }) => publishedAt < until);
}

function archived({ message, position, attempts, ...row }: StoredRow) {
  const [createdAt, publishedAt] = [new Date(row.createdAt), new Date(row.publishedAt ?? 0)];
  return { message: messageOf(message), position, attempts, createdAt, publishedAt };
}

/** A message that is older than what was forgotten may have been handled: from here on it is too old, and not new. */
async function forget(database: JsonDatabase, { box: name, retentionMs }: CheckedPurge): Promise<number> {
  if (!(await database.committed()).boxes.has(name)) return 0;
  return database.change(name, (box, now) => {
    const until = now - retentionMs;
    box.forgottenUntil = Math.max(box.forgottenUntil, until);
    const old = [...box.remembered].filter(([, { since }]) => since < until);
    for (const [id] of old) box.remembered.delete(id);
    for (const { position } of doneBefore(box, until)) box.rows.delete(position);
    return old.length;
  });
}
