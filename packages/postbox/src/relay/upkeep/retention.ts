import type { PurgeOptions } from "../../admin.js";
import { sleep } from "../../internal/runtime.js";
import type { Store } from "../../store.js";
import type { DrainContext } from "../context.js";

export interface RetentionOptions extends Pick<PurgeOptions, "retentionMs" | "archive"> {
  /** What only this store's `purge` has, checked by its rules. Defaults to nothing. */
  readonly own?: object;
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
