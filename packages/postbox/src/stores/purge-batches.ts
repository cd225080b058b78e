import type { ArchivedMessage, PurgeOptions } from "../admin.js";
import { type Runtime, sleep } from "../internal/runtime.js";

/*
 * Purges with small deletes, for any store. It may stop after any step. A crash leaves rows that were not deleted yet,
 * and the next purge continues with them. An archive may receive a batch again if its delete had not committed.
 */

/** How often the lease is renewed while an archive works. */
const renewMs = 20_000;
/** How much longer than a batch took the purge rests after it. Relays that send and settle come first. */
const rest = 9;

export interface PurgeBatchesOptions extends Pick<PurgeOptions, "archive" | "signal"> {
  readonly runtime: Runtime;
  /**
   * Takes or renews the right to purge, for at least a minute. Returns false if another purge has it or this one has to
   * stop.
   */
  mayGoOn(): Promise<boolean>;
}

/** The rows to delete next. */
export interface PurgeBatch {
  /** What the archive receives before. Absent if nothing is archived. */
  readonly messages?: readonly ArchivedMessage[];
  /** Whether no batch follows. Defaults to false. */
  readonly isLast?: boolean;
  /** Deletes them. Returns how many it has found. */
  remove(): Promise<number>;
}

export interface PurgeBatches {
  /** Removes batch after batch until there is none or the purge has to stop. Returns how many rows were removed. */
  removeAll(next: () => Promise<PurgeBatch | undefined>): Promise<number>;
  /** Passes messages to the archive, in order of position. No other purge may archive the same messages meanwhile. */
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
