import { type Backoff, reliable } from "../backoff.js";
import { ConfigError, PostboxError } from "../errors.js";
import { type Runtime, sleep } from "../internal/runtime.js";

/** A connection that stood for so long was well: the next loss is the first one again. */
const standsMs = 5000;

export interface StayConnectedOptions {
  /** The pause after so many failures in a row. */
  readonly backoff: Backoff;
  readonly runtime: Runtime;
  /** Hears of each loss once, as soon as it is known. Without `retryInMs`, nothing is tried again. */
  lost(error: PostboxError, retryInMs?: number): void;
}

/** One connection, from the attempt to open it to its end. */
export interface Attempt {
  /** It stands. */
  ready(): void;
  /** It was lost. `run` may take until it rejects: what was handed over has to be settled first. */
  lost(error: Error): void;
}

/**
 * Runs one connection after the other until the signal is aborted: `run` opens it, works on it and rejects when it is
 * lost. Pauses between two of them grow as long as none has stood for a while. Rejects for a `ConfigError`, which no
 * retry can mend.
 */
export async function stayConnected(
  { backoff, runtime, lost: tell }: StayConnectedOptions,
  signal: AbortSignal,
  run: (attempt: Attempt) => Promise<void>,
): Promise<void> {
  const pauseAfter = reliable(backoff, (error) => tell(PostboxError.from(error)));
  let failures = 0;
  while (!signal.aborted) {
    let pauseMs: number | undefined;
    let readyAt = Number.POSITIVE_INFINITY;
    const lost = (thrown: unknown): number => {
      if (pauseMs === undefined) {
        // One that ends as soon as it stands would begin anew for ever, and at once.
        if (runtime.now() - readyAt >= standsMs) failures = 0;
        pauseMs = pauseAfter(++failures, runtime.random);
        tell(PostboxError.from(thrown, "transport-down"), pauseMs);
      }
      return pauseMs;
    };
    try {
      await run({
        ready() {
          readyAt = runtime.now();
        },
        lost,
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ConfigError) {
        tell(error);
        throw error;
      }
      await sleep(runtime, lost(error), signal);
    }
  }
}
