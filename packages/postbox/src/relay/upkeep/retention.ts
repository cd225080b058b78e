import type { PurgeOptions } from "../../admin.js";
import { type Runtime, sleep } from "../../internal/runtime.js";
import type { Store } from "../../store.js";
import type { Telemetry } from "../../telemetry/events.js";

export interface RetentionOptions extends Pick<PurgeOptions, "retentionMs" | "archive" | "partitions"> {
  readonly store: Pick<Store, "purge">;
  readonly boxName: string;
  readonly cleanIntervalMs: number;
  /** Not before. Defaults to at once. */
  readonly afterMs?: number;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
  failed(error: unknown, retryInMs: number): void;
}

/**
 * Removes what was kept long enough, now and then, until the signal is aborted. Of several relays one does it at a time. It
 * never ends a relay: what cannot be removed today is still there tomorrow.
 */
export async function keepClean(options: RetentionOptions, signal: AbortSignal): Promise<void> {
  const { store, boxName: box, retentionMs, archive, partitions, cleanIntervalMs, runtime, telemetry } = options;
  if (options.afterMs !== undefined) await sleep(runtime, options.afterMs, signal);
  while (!signal.aborted) {
    try {
      const { busy, ...purged } = await store.purge({
        box,
        retentionMs,
        signal,
        ...(archive && { archive }),
        ...(partitions !== undefined && { partitions }),
      });
      if (!busy) telemetry({ name: "relay.cleaned", box, ...purged });
    } catch (error) {
      options.failed(error, cleanIntervalMs);
    }
    await sleep(runtime, cleanIntervalMs, signal);
  }
}
