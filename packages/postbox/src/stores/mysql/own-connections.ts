import type { Pool as CallbackPool } from "mysql2";
import { type Connection, type ConnectionOptions, createConnection, type Pool } from "mysql2/promise";
import { PostboxError } from "../../errors.js";
import { unavailable } from "../../internal/unavailable.js";
import { isMysqlLost, isMysqlRefused } from "../../transactions/mysql-errors.js";

/** A pool of `mysql2/promise`, or of `mysql2`. */
export type MysqlPool = Pool | CallbackPool;

/** The answer to one statement. */
export interface Answer {
  readonly rows: readonly Readonly<Record<string, unknown>>[];
  /** How many rows a writing statement has found, whether it changed them or not. */
  readonly count: number;
}

/** A connection of the store, with settings that its statements rely on. */
export interface Session {
  /** Runs one statement with `?` placeholders. */
  run(sql: string, params?: readonly unknown[]): Promise<Answer>;
  /** Runs statements in one round trip, each after the one before. The first that fails ends it. */
  runAll(statements: readonly (readonly [sql: string, params?: readonly unknown[]])[]): Promise<readonly Answer[]>;
}

/** What a pool has beyond its types. */
interface PoolParts {
  readonly pool?: PoolParts;
  readonly _closed?: boolean;
  readonly config?: { readonly connectionLimit?: number; readonly connectionConfig?: ConnectionOptions };
}

interface ConnectionParts {
  readonly connection: { readonly state: string; readonly stream: { ref?(): void; unref?(): void } };
  readonly threadId: number;
}

/** How a connection reaches the server and logs in: what the store takes over from the user's pool. */
const taken = [
  "host",
  "port",
  "localAddress",
  "socketPath",
  "user",
  "password",
  "password1",
  "password2",
  "password3",
  "passwordSha1",
  "database",
  "ssl",
  "connectTimeout",
  "authPlugins",
  "authSwitchHandler",
  "enableCleartextPlugin",
  "insecureAuth",
  "stream",
  "compress",
] as const;

/**
 * READ COMMITTED: a statement sees what was committed meanwhile, and locks no gaps between rows. The other settings
 * keep the server's own defaults from changing what a statement means.
 */
const settings = `SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET SESSION time_zone = '+00:00', autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',
  collation_connection = 'utf8mb4_bin'
  /*!80000 , information_schema_stats_expiry = 0 */`;

const idleMs = 10_000;
const killLimitMs = 5_000;

/** The pool underneath: `mysql2/promise` wraps that of `mysql2`. */
export function partsOf(pool: MysqlPool): PoolParts {
  const parts = pool as unknown as PoolParts;
  return parts.pool ?? parts;
}

/**
 * A few connections beside the user's pool, to the same server: with settings of their own, and free even if handlers
 * occupy the whole pool. They are opened when they are needed and closed after some idle time, and none keeps the
 * process alive.
 */
export class OwnConnections {
  readonly #pool: PoolParts;
  readonly #most: number;
  readonly #idle: { readonly connection: Connection; readonly timer: NodeJS.Timeout }[] = [];
  readonly #waiting: (() => void)[] = [];
  #taken = 0;

  constructor(pool: MysqlPool, most: number) {
    this.#pool = partsOf(pool);
    this.#most = most;
  }

  /**
   * Runs `work` on a connection that nobody else uses meanwhile. If the signal is aborted first, the call rejects with
   * its reason, the statement is killed on the server, and its connection is closed.
   */
  async use<R>(work: (session: Session) => Promise<R>, signal?: AbortSignal): Promise<R> {
    signal?.throwIfAborted();
    if (this.#pool._closed === true) throw closed();
    await this.#place(signal);
    const connection = this.#reused() ?? (await this.#opened(signal));
    if (signal?.aborted) {
      this.#giveBack(connection);
      throw signal.reason;
    }
    return this.#within(connection, work, signal);
  }

  /** Opens a connection, for as long as the signal allows. One that arrives later serves another call. */
  #opened(signal: AbortSignal | undefined): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const giveUp = () => reject(signal?.reason);
      signal?.addEventListener("abort", giveUp, { once: true });
      this.#open()
        .then(
          (connection) => {
            if (signal?.aborted) this.#giveBack(connection);
            else resolve(connection);
          },
          (error) => {
            this.#free();
            reject(error);
          },
        )
        .finally(() => signal?.removeEventListener("abort", giveUp));
    });
  }

  #within<R>(connection: Connection, work: (session: Session) => Promise<R>, signal?: AbortSignal): Promise<R> {
    return new Promise((resolve, reject) => {
      let givenUp = false;
      const giveUp = () => {
        givenUp = true;
        reject(signal?.reason);
        // The place stays taken until the server has ended the statement, so that few of them ever wait there.
        void this.#kill(connection).finally(() => this.#free());
      };
      signal?.addEventListener("abort", giveUp, { once: true });
      const over = (isUsable: boolean) => {
        signal?.removeEventListener("abort", giveUp);
        if (givenUp) return;
        if (isUsable) this.#giveBack(connection);
        else {
          connection.destroy();
          this.#free();
        }
      };
      work(sessionOn(connection)).then(
        (result) => {
          over(true);
          resolve(result);
        },
        (error) => {
          over(!isMysqlLost(error) && isOpen(connection));
          reject(named(error));
        },
      );
    });
  }

  /** Waits until fewer than the most connections are in use. */
  async #place(signal: AbortSignal | undefined): Promise<void> {
    if (this.#taken < this.#most) {
      this.#taken++;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const next = () => {
        signal?.removeEventListener("abort", giveUp);
        resolve();
      };
      const giveUp = () => {
        this.#waiting.splice(this.#waiting.indexOf(next), 1);
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", giveUp, { once: true });
      this.#waiting.push(next);
    });
  }

  #free(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#taken--;
    else next();
  }

  #reused(): Connection | undefined {
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      clearTimeout(idle.timer);
      if (isOpen(idle.connection)) {
        streamOf(idle.connection).ref?.();
        return idle.connection;
      }
      idle.connection.destroy();
    }
    return undefined;
  }

  #giveBack(connection: Connection): void {
    this.#free();
    streamOf(connection).unref?.();
    const timer = setTimeout(() => {
      const at = this.#idle.findIndex((idle) => idle.connection === connection);
      if (at !== -1) this.#idle.splice(at, 1);
      void connection.end().catch(() => connection.destroy());
    }, idleMs);
    timer.unref();
    this.#idle.push({ connection, timer });
  }

  async #open(): Promise<Connection> {
    try {
      const connection = await createConnection(this.#options());
      // Without a listener, a connection that breaks would end the process. Its next use fails anyway.
      connection.on("error", () => {});
      await connection.query(settings);
      return connection;
    } catch (error) {
      throw named(error);
    }
  }

  #options(): ConnectionOptions {
    const given = (this.#pool.config?.connectionConfig ?? {}) as Record<string, unknown>;
    const login = Object.fromEntries(
      taken.flatMap((name) => (given[name] === undefined || given[name] === false ? [] : [[name, given[name]]])),
    );
    return {
      ...login,
      charset: "utf8mb4_bin",
      timezone: "Z",
      // Whether an update that changes nothing counts depends on this flag, and no statement here depends on that.
      flags: ["FOUND_ROWS"],
      multipleStatements: true,
      supportBigNumbers: true,
      enableKeepAlive: true,
      jsonStrings: true,
    };
  }

  async #kill(connection: Connection): Promise<void> {
    const { threadId } = connection as unknown as ConnectionParts;
    // Closing our end alone would leave the statement waiting for a lock on the server.
    connection.destroy();
    await this.kill(threadId);
  }

  /**
   * Ends a session of the server, whose transaction is then rolled back. Never rejects, and ends within a few seconds.
   */
  async kill(threadId: number, what: "CONNECTION" | "QUERY" = "CONNECTION"): Promise<void> {
    let killer: Connection | undefined;
    const limit = setTimeout(() => killer?.destroy(), killLimitMs);
    limit.unref();
    try {
      killer = await createConnection({ ...this.#options(), connectTimeout: killLimitMs });
      killer.on("error", () => {});
      await killer.query(`KILL ${what} ${threadId}`);
    } catch {
      // It has ended by itself, or the server cannot be reached.
    } finally {
      clearTimeout(limit);
      killer?.destroy();
    }
  }
}

/** The connections of all stores on one pool. */
export interface StoreConnections {
  /** For reads, which wait for no lock. So a transaction that holds locks can always look something up here. */
  readonly reads: OwnConnections;
  readonly writes: OwnConnections;
  /** Behind writes that wait for a lock, a lease would expire. */
  readonly renewals: OwnConnections;
}

const known = new WeakMap<object, StoreConnections>();

/** A store may be made for each request, so its connections belong to the pool. */
export function storeConnectionsOf(pool: MysqlPool): StoreConnections {
  const parts = partsOf(pool);
  const connections = known.get(parts) ?? {
    reads: new OwnConnections(pool, 3),
    writes: new OwnConnections(pool, 3),
    renewals: new OwnConnections(pool, 2),
  };
  known.set(parts, connections);
  return connections;
}

function isOpen(connection: Connection): boolean {
  // The promise wrapper of mysql2 does not show it.
  return (connection as unknown as ConnectionParts).connection.state === "authenticated";
}

function streamOf(connection: Connection) {
  return (connection as unknown as ConnectionParts).connection.stream;
}

interface Header {
  readonly affectedRows?: number;
}

function sessionOn(connection: Connection): Session {
  const answerOf = (result: unknown): Answer =>
    Array.isArray(result)
      ? { rows: result, count: result.length }
      : { rows: [], count: Number((result as Header).affectedRows ?? 0) };
  return {
    async run(sql, params = []) {
      const [result] = await connection.query(sql, params as unknown[]);
      return answerOf(result);
    },
    async runAll(statements) {
      const texts = statements.map(([sql, params = []]) => connection.format(sql, params as unknown[]));
      const [results] = await connection.query(texts.join(";\n"));
      return (texts.length === 1 ? [results] : (results as unknown[])).map(answerOf);
    },
  };
}

/** Names an error of a server that was not reached, or that refuses the login. */
function named(error: unknown): unknown {
  if (error instanceof PostboxError) return error;
  if (isMysqlRefused(error)) {
    const { message } = error as Error;
    const text = `MySQL refuses the connection: ${message}; check user, password and database of the pool`;
    return new PostboxError("store-refused", text, { cause: error });
  }
  return isMysqlLost(error) || isUnreached(error) ? unavailable("mysql", error) : error;
}

/** Whether a connection could not be opened. */
function isUnreached(error: unknown): boolean {
  const { syscall, fatal } = (error ?? {}) as { readonly syscall?: unknown; readonly fatal?: unknown };
  return fatal === true && syscall !== undefined;
}

function closed(): PostboxError {
  return new PostboxError(
    "store-closed",
    "the pool of mysql was ended while it was still in use; stop or close everything that uses the store first, " +
      "then end its pool",
  );
}
