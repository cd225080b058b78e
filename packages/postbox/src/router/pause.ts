import { type Runtime, sleep } from "../internal/runtime.js";
import { whenAborted } from "../internal/when-aborted.js";
import type { Delivery } from "../transport.js";

/** Resolves when the time has passed, the router stops, or the broker revokes the delivery. */
export async function pauseOf(
  { signal }: Pick<Delivery, "signal">,
  ms: number,
  stopping: AbortSignal,
  runtime: Runtime,
): Promise<void> {
  const over = new AbortController();
  const forget = [stopping, ...(signal ? [signal] : [])].map((each) => whenAborted(each, () => over.abort()));
  await sleep(runtime, ms, over.signal);
  for (const each of forget) each();
}
