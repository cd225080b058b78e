import { type Backoff, reliable } from "../../backoff.js";
import { ConfigError, PostboxError } from "../../errors.js";
import { following } from "../../internal/following.js";
import { type Runtime, sleep } from "../../internal/runtime.js";
import { withTimeout } from "../../internal/with-timeout.js";
import type { Telemetry } from "../../telemetry/events.js";
import type { Sender } from "../../transport.js";

export interface RunToOptions {
  readonly box: string;
  readonly backoff: Backoff;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
}

/** A sender that hangs must not keep the process from ending. */
const closeMs = 5_000;

/**
 * Drains a box to a sender, and manages the sender's connection. It connects at once, so that refused credentials show
 * at the start and not with the first message. It calls `ready` once the broker and the store have answered. In the
 * end, whatever happened, it closes the sender.
 */
export async function runTo(
  sender: Sender,
  options: RunToOptions,
  signal: AbortSignal,
  ready: () => void,
  drain: (signal: AbortSignal, reached: () => void) => Promise<void>,
): Promise<void> {
  const stop = following(signal);
  let waitsFor = 2;
  const reached = once(() => {
    if (--waitsFor === 0) ready();
  });
  const connecting = connect(sender, options, stop.signal).then(
    once(() => {
      if (!stop.signal.aborted && --waitsFor === 0) ready();
    }),
  );
  const draining = drain(stop.signal, reached);
  try {
    await Promise.all([connecting, draining]);
  } finally {
    stop.abort();
    await Promise.allSettled([connecting, draining]);
    await close(sender, options);
  }
}

/** Retries until the sender is connected or the signal is aborted. Rejects if retrying can never succeed. */
async function connect(sender: Sender, options: RunToOptions, signal: AbortSignal): Promise<void> {
  const { box, runtime, telemetry } = options;
  const failed = (thrown: unknown, retryInMs: number) =>
    telemetry({ name: "relay.failed", box, error: PostboxError.from(thrown, "transport-down"), retryInMs });
  const backoff = reliable(options.backoff, (error) => failed(error, 0));
  for (let failures = 1; !signal.aborted; failures++) {
    try {
      return await sender.connect?.(signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ConfigError) {
        failed(error, Number.POSITIVE_INFINITY);
        throw error;
      }
      const retryInMs = backoff(failures, runtime.random);
      const { name: who } = sender;
      telemetry({
        name: "breaker.opened",
        box,
        sender: who,
        retryInMs,
        error: PostboxError.from(error, "transport-down"),
      });
      await sleep(runtime, retryInMs, signal);
    }
  }
}

async function close(sender: Sender, { box, runtime, telemetry }: RunToOptions): Promise<void> {
  const late = () =>
    new PostboxError("stop-timeout", `${sender.name} did not close within ${closeMs} ms; its connection is left open`);
  try {
    await withTimeout(runtime, closeMs, late, async () => sender.close?.());
  } catch (error) {
    telemetry({ name: "relay.failed", box, error: PostboxError.from(error), retryInMs: 0 });
  }
}

function once(task: () => void): () => void {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    task();
  };
}
