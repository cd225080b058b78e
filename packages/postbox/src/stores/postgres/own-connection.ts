import type { Client, ClientConfig, Notification, Pool, QueryConfig, QueryResult } from "pg";
import { cancelStatement } from "./cancel-statement.js";

/**
 * A connection that only its opener uses. A step that fails or exceeds its limit closes the connection and cancels its
 * statement on the server, so that nothing ever queues up behind a dead socket.
 */
export interface OwnConnection {
  query(statement: string | QueryConfig, params?: readonly unknown[]): Promise<QueryResult>;
  /** Resolves with the reason when the connection breaks. Never rejects. */
  readonly broken: Promise<Error>;
  /** Passes every notification of the server to `heard` from now on. */
  onNotification(heard: (notification: Notification) => void): void;
  /** Closes the connection, by force if the server does not answer. Never rejects. */
  close(): Promise<void>;
  /** Closes it at once and cancels its statement on the server. */
  giveUp(): void;
}

/**
 * Opens a connection whose application name contains its purpose. Neither opening it nor any of its statements may take
 * longer than `limitMs`.
 */
export type OpenConnection = (purpose: string, limitMs: number, signal?: AbortSignal) => Promise<OwnConnection>;

/** What a `pg` pool has beyond its types. */
interface PoolParts {
  readonly Client?: new (config: ClientConfig) => ClientParts;
  readonly options?: { onConnect?(client: Client): unknown };
}

type ClientParts = Client & { readonly connection: { readonly stream: { destroy(): void } } };

const closeLimitMs = 1000;

/**
 * How to open connections outside of the pool, to the pool's server or to `directUrl`. Undefined if that is impossible:
 * the pool only imitates `pg`, or all its clients share one connection, as with PGlite.
 */
export function ownConnections(pool: Pool, directUrl?: string): OpenConnection | undefined {
  const { Client, options } = pool as unknown as PoolParts;
  if (typeof Client !== "function" || typeof options !== "object") return undefined;
  if (directUrl === undefined && "connection" in options) return undefined;

  return async (purpose, limitMs, signal) => {
    const config = {
      keepAlive: true,
      connectionTimeoutMillis: limitMs,
      query_timeout: limitMs,
      application_name: `postbox ${purpose}`,
      ...(directUrl !== undefined && { connectionString: directUrl, connection: undefined }),
    };
    // Includes the pool's non-enumerable options, such as the password.
    const all = Object.defineProperties({}, Object.getOwnPropertyDescriptors(options));
    const client = new Client(Object.assign(all, config));
    return connected(client, options.onConnect, signal);
  };
}

async function connected(
  client: ClientParts,
  prepare?: (client: Client) => unknown,
  signal?: AbortSignal,
): Promise<OwnConnection> {
  const destroy = () => client.connection.stream.destroy();
  // Without a listener, a broken connection would end the process.
  const broken = new Promise<Error>((resolve) => client.on("error", resolve));
  signal?.addEventListener("abort", destroy, { once: true });
  try {
    signal?.throwIfAborted();
    await client.connect();
    await prepare?.(client);
  } catch (error) {
    destroy();
    throw error;
  } finally {
    signal?.removeEventListener("abort", destroy);
  }

  async function close(): Promise<void> {
    const timer = setTimeout(destroy, closeLimitMs);
    await client.end().catch(() => {});
    clearTimeout(timer);
  }

  return {
    broken,
    onNotification: (heard) => client.on("notification", heard),
    async query(statement, params) {
      try {
        return await client.query(statement as string, params as unknown[] | undefined);
      } catch (error) {
        // The server has answered, so no statement is left to cancel.
        if ((error as { readonly severity?: unknown }).severity === "ERROR") destroy();
        else void cancelStatement(client);
        throw error;
      }
    },
    close,
    giveUp: () => void cancelStatement(client),
  };
}
