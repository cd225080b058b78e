import type { ArchivedMessage, PurgeOptions } from "../admin.js";
import { type Runtime, sleep } from "../internal/runtime.js";

/*
 * Purging by small deletes, for any store: a step at a time, each of which may be the last. A crash leaves what was not deleted yet,
 * and the next purge goes on. An archive may get a batch again whose delete had not committed.
 */

/** How often the lease is renewed while an archive works. */
const renewMs = 20_000;
/** So much longer a purge rests after a batch than the database has worked for it: relays that send and settle go first. */
const rest = 9;

export interface PurgeBatchesOptions extends Pick<PurgeOptions, "archive" | "signal"> {
  readonly runtime: Runtime;
  /** Takes or renews the right to purge, for a minute at least. False: another one has it, or this purge is to end. */
  mayGoOn(): Promise<boolean>;
}

/** The rows to be deleted next. */
export interface PurgeBatch {
  /** What an archive gets before. Absent: nothing is archived. */
  readonly messages?: readonly ArchivedMessage[];
  /** Whether there are no more behind it. Defaults to false. */
  readonly isLast?: boolean;
  /** Deletes them. Answers with how many it has found. */
  remove(): Promise<number>;
}

export interface PurgeBatches {
  /** Removes batch after batch, until there is none, or it is to end. Answers with how many rows were removed. */
  removeAll(next: () => Promise<PurgeBatch | undefined>): Promise<number>;
  /** Hands messages to the archive, in order of position. Nobody else may archive the same ones meanwhile. */
  archived(messages: readonly ArchivedMessage[]): Promise<void>;
}

export function purgeBatches({ runtime, mayGoOn, archive, signal }: PurgeBatchesOptions): PurgeBatches {
  /** An archive may take longer than the lease. */
  async function renewUntil(done: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(runtime, renewMs, done);
      if (done.aborted) return;
      await mayGoOn().catch(() => false);
    }
  }

  async function archived(messages: readonly ArchivedMessage[]): Promise<void> {
    const done = new AbortController();
    const renewing = renewUntil(done.signal);
    try {
      const inOrder = [...messages].sort((one, other) => one.position - other.position);
      await archive?.(inOrder, signal ?? new AbortController().signal);
    } finally {
      done.abort();
      await renewing;
    }
  }

  return {
    archived,
    async removeAll(next) {
      let removed = 0;
      while (await mayGoOn()) {
        const startedAt = runtime.monotonic();
        const batch = await next();
        if (batch === undefined) break;
        const foundMs = runtime.monotonic() - startedAt;
        if (batch.messages !== undefined) await archived(batch.messages);
        const archivedAt = runtime.monotonic();
        removed += await batch.remove();
        if (batch.isLast === true) break;
        await sleep(runtime, rest * (foundMs + runtime.monotonic() - archivedAt), signal);
      }
      return removed;
    },
  };
}
