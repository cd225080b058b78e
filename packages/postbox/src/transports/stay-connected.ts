import { type Backoff, reliable } from "../backoff.js";
import { ConfigError, PostboxError } from "../errors.js";
import { type Runtime, sleep } from "../internal/runtime.js";

/** After a connection has lasted this long, the next loss counts as the first. */
const standsMs = 5000;

/** Options of `stayConnected`. */
export interface StayConnectedOptions {
  /** The pause after a number of failures in a row. */
  readonly backoff: Backoff;
  readonly runtime: Runtime;
  /** Called once for each loss, as soon as it is known. Without `retryInMs`, there is no retry. */
  lost(error: PostboxError, retryInMs?: number): void;
}

/** One connection, from the attempt to open it to its end. */
export interface Attempt {
  /** It is connected. */
  ready(): void;
  /** It was lost. `run` may reject later, since deliveries have to be settled first. */
  lost(error: Error): void;
}

/**
 * Runs one connection after another until the signal is aborted: `run` opens a connection, works on it, and rejects
 * when it is lost. The pauses in between grow until a connection has lasted for a while. Rejects with a `ConfigError`,
 * which no retry can resolve, except for credentials that were accepted before: while a password is changed, they are
 * refused for a while.
 *
 * @example
 * ```ts
 * const stopping = new AbortController();
 * const told = { backoff: exponential(), runtime: runtimeWith(), lost: console.error };
 * await stayConnected(told, stopping.signal, async ({ ready, lost }) => {
 *   const socket = connect(5672);
 *   socket.once("connect", ready).once("error", lost);
 *   await once(socket, "close");
 * });
 * ```
 */
export async function stayConnected(
  { backoff, runtime, lost: tell }: StayConnectedOptions,
  signal: AbortSignal,
  run: (attempt: Attempt) => Promise<void>,
): Promise<void> {
  const pauseAfter = reliable(backoff, (error) => tell(PostboxError.from(error)));
  let failures = 0;
  let wasAccepted = false;
  const isFinal = (error: unknown) =>
    error instanceof ConfigError && !(wasAccepted && error.code === "transport-refused");
  while (!signal.aborted) {
    let pauseMs: number | undefined;
    let readyAt = Number.POSITIVE_INFINITY;
    const lost = (thrown: unknown): number => {
      if (pauseMs === undefined) {
        // A connection that ends as soon as it is open would otherwise be retried without a pause, for ever.
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
          wasAccepted = true;
        },
        lost,
      });
    } catch (error) {
      if (signal.aborted) return;
      if (isFinal(error)) {
        tell(error as ConfigError);
        throw error;
      }
      await sleep(runtime, lost(error), signal);
    }
  }
}
