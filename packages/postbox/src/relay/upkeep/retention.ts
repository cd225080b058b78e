import type { PurgeOptions } from "../../admin.js";
import { sleep } from "../../internal/runtime.js";
import type { Store } from "../../store.js";
import type { DrainContext } from "../context.js";

export interface RetentionOptions extends Pick<PurgeOptions, "retentionMs" | "archive" | "partitions"> {
  readonly cleanIntervalMs: number;
  /** Not before. Defaults to at once. */
  readonly afterMs?: number;
}

export interface CleaningOptions
  extends RetentionOptions,
    Pick<DrainContext, "boxName" | "runtime" | "telemetry" | "failed"> {
  readonly store: Pick<Store, "purge">;
}

/**
 * Removes what was kept long enough, now and then, until the signal is aborted. Of several relays one does it at a time. It
 * never ends a relay: what cannot be removed today is still there tomorrow.
 */
export async function keepClean(options: CleaningOptions, signal: AbortSignal): Promise<void> {
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
