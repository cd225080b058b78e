import type { PurgeOptions } from "../../admin.js";
import { sleep } from "../../internal/runtime.js";
import type { Store } from "../../store.js";
import type { DrainContext } from "../context.js";

export interface RetentionOptions extends Pick<PurgeOptions, "retentionMs" | "archive"> {
  /** Options that only this store's `purge` has, checked by the store's rules. Defaults to nothing. */
  readonly own?: object;
  readonly cleanIntervalMs: number;
  /** The delay before the first purge. Defaults to none. */
  readonly afterMs?: number;
}

export interface CleaningOptions
  extends RetentionOptions,
    Pick<DrainContext, "boxName" | "runtime" | "telemetry" | "failed"> {
  readonly store: Pick<Store, "purge">;
}

/**
 * Purges the box at intervals until the signal is aborted. If several relays purge a box, one works at a time. A
 * failure never ends a relay: the next purge removes what this one could not.
 */
export async function keepClean(options: CleaningOptions, signal: AbortSignal): Promise<void> {
  const { store, boxName: box, retentionMs, archive, own, cleanIntervalMs, runtime, telemetry } = options;
  if (options.afterMs !== undefined) await sleep(runtime, options.afterMs, signal);
  while (!signal.aborted) {
    try {
      const { busy, removed, ...figures } = await store.purge({
        box,
        retentionMs,
        signal,
        ...(archive && { archive }),
        ...own,
      });
      if (!busy) telemetry({ name: "relay.cleaned", box, removed, figures });
    } catch (error) {
      options.failed(error, cleanIntervalMs);
    }
    await sleep(runtime, cleanIntervalMs, signal);
  }
}
