import type { Client, ClientConfig, Notification, Pool, QueryConfig, QueryResult } from "pg";
import { cancelStatement } from "./cancel-statement.js";

/**
 * A connection that belongs to nobody but its opener. Whatever takes longer than its limit, or fails, closes it, and is
 * cancelled on the server: nothing may ever queue up behind a socket that is dead and does not know it.
 */
export interface OwnConnection {
  query(statement: string | QueryConfig, params?: readonly unknown[]): Promise<QueryResult>;
  /** Resolves with the reason when it has broken; never otherwise. */
  readonly broken: Promise<Error>;
  /** From now on, whatever the server notifies it of. */
  onNotification(heard: (notification: Notification) => void): void;
  /** Ends it, by force where the server does not answer. Never rejects. */
  close(): Promise<void>;
  /** Ends it at once, and what it runs on the server. */
  giveUp(): void;
}

/** Opens one, which carries its purpose in its application's name; neither that nor any of its statements may take longer than `limitMs`. */
export type OpenConnection = (purpose: string, limitMs: number, signal?: AbortSignal) => Promise<OwnConnection>;

/** What a pool of `pg` has beside its types. */
interface PoolParts {
  readonly Client?: new (config: ClientConfig) => ClientParts;
  readonly options?: { onConnect?(client: Client): unknown };
}

type ClientParts = Client & { readonly connection: { readonly stream: { destroy(): void } } };

const closeLimitMs = 1000;

/**
 * How to open connections beside the pool: to where the pool connects, or to `directUrl`. Undefined where there is no way
 * to: what only looks like a pool, or a database with a single connection that all its clients share (PGlite).
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
    // With the pool's hidden properties: the password is one.
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
  // A connection that breaks without a listener ends the process.
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
        // What the server has answered is over.
        if ((error as { readonly severity?: unknown }).severity === "ERROR") destroy();
        else void cancelStatement(client);
        throw error;
      }
    },
    close,
    giveUp: () => void cancelStatement(client),
  };
}
