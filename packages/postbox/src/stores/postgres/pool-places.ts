import type { Pool, PoolClient } from "pg";

/**
 * Clients of a pool, for calls that may be abandoned. A pool cannot withdraw a request for a client. A client that
 * arrives for an abandoned call serves the next call or is released at once, so abandoned calls never pile up in the
 * pool.
 */
export function poolPlaces(pool: Pool) {
  const requests: Promise<PoolClient>[] = [];
  const waiting = new Set<(client: PoolClient | undefined, error?: unknown) => void>();

  function request(): void {
    const asked = pool.connect();
    requests.push(asked);
    const answered = (
      use: (first: (client: PoolClient | undefined, error?: unknown) => void) => void,
      unwanted: () => void,
    ) => {
      requests.splice(requests.indexOf(asked), 1);
      const [first] = waiting;
      if (first === undefined) unwanted();
      else {
        waiting.delete(first);
        use(first);
      }
    };
    asked.then(
      (client) =>
        answered(
          (first) => first(client),
          () => client.release(),
        ),
      (error) =>
        answered(
          (first) => first(undefined, error),
          () => {},
        ),
    );
  }

  /** Returns a client, or undefined if there is none within `patienceMs`. */
  function take(signal: AbortSignal, patienceMs: number | undefined): Promise<PoolClient | undefined> {
    return new Promise((resolve, reject) => {
      const end = () => {
        waiting.delete(got);
        clearTimeout(timer);
        signal.removeEventListener("abort", onAbort);
      };
      const got = (client: PoolClient | undefined, error?: unknown) => {
        end();
        if (error === undefined) resolve(client);
        else reject(error);
      };
      const onAbort = () => {
        end();
        reject(signal.reason);
      };
      const timer = patienceMs === undefined ? undefined : setTimeout(() => got(undefined), patienceMs);
      if (signal.aborted) return onAbort();
      signal.addEventListener("abort", onAbort, { once: true });
      waiting.add(got);
      if (requests.length < waiting.size) request();
    });
  }
  return { take };
}
