import { ConfigError, PostboxError } from "../../errors.js";
import { laneCount } from "../../internal/lane.js";
import { reasonOf } from "../../internal/reason-of.js";
import { type Runtime, sleep } from "../../internal/runtime.js";
import { isUnavailable } from "../../internal/unavailable.js";
import {
  duplicateEntry,
  isMysqlConflict,
  isMysqlRefused,
  isTableMissing,
  mysqlNumber,
} from "../../transactions/mysql-errors.js";
import { requireBox } from "../box-names.js";
import { msOf, nowSql, outboxNumber, type Tables, tablesIn } from "./names.js";
import {
  type Answer,
  type MysqlPool,
  type OwnConnections,
  partsOf,
  type Session,
  type StoreConnections,
  storeConnectionsOf,
} from "./own-connections.js";
import { schemaVersion } from "./schema.js";
import { requireServer, type Server } from "./server.js";

const migrateFirst = "call store.migrate() once, or run migrationSql()";
/** How often a transaction of the store is run again after a deadlock, and the longest pause before that. */
const mostTries = 20;
const longestPauseMs = 200;

/** How a store reads and writes its tables outside of users' own transactions. */
export class MysqlAccess {
  readonly runtime: Runtime;
  readonly database: string;
  readonly t: Tables;
  readonly connections: StoreConnections;
  /** The numbers of boxes never change. */
  readonly #boxes = new Map<string, number>([["outbox", outboxNumber]]);
  #server: Server | undefined;
  #hasSchema = false;

  constructor(pool: MysqlPool, database: string | undefined, runtime: Runtime) {
    this.runtime = runtime;
    this.database = database ?? databaseOf(pool);
    this.t = tablesIn(this.database);
    this.connections = storeConnectionsOf(pool);
  }

  /** Runs reads, each of which sees what is committed when it begins. */
  async read<R>(look: (session: Session) => Promise<R>, signal?: AbortSignal): Promise<R> {
    return this.connections.reads.use(async (session) => {
      await this.#ready(session);
      return look(session);
    }, signal);
  }

  /** Runs reads on one snapshot. */
  look<R>(look: (session: Session) => Promise<R>, signal?: AbortSignal): Promise<R> {
    return this.connections.reads.use(async (session) => {
      await this.#ready(session);
      const begin = [
        ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"],
        ["START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"],
      ] as const;
      const transaction = new Transaction(session, begin);
      return ended(transaction, () => look(transaction));
    }, signal);
  }

  /**
   * Runs `work` in a transaction, and all of it again if a concurrent transaction made it fail. A crash leaves all of
   * it or nothing.
   */
  async transact<R>(
    work: (transaction: Transaction) => Promise<R>,
    signal?: AbortSignal,
    on: OwnConnections = this.connections.writes,
  ): Promise<R> {
    for (let tries = 1; ; tries++) {
      try {
        return await on.use(async (session) => {
          await this.#ready(session);
          const transaction = new Transaction(session);
          return ended(transaction, () => work(transaction));
        }, signal);
      } catch (error) {
        if (!isMysqlConflict(error) || tries === mostTries) throw error;
        // At random, so that two relays do not try in step.
        await sleep(this.runtime, Math.min(tries * 10, longestPauseMs) * this.runtime.random(), signal);
        signal?.throwIfAborted();
      }
    }
  }

  /** What the server is. Known once the schema was checked. */
  get server(): Server {
    if (this.#server === undefined) throw new Error("the server is known once a statement has run");
    return this.#server;
  }

  /** Asks the server for its version, and checks the schema, once. */
  async ready(): Promise<void> {
    if (!this.#hasSchema) await this.read(async () => {});
  }

  async #ready(session: Session): Promise<void> {
    this.#server ??= await requireServer(session);
    if (this.#hasSchema) return;
    const fault = await this.schemaFault(session);
    if (fault !== undefined) throw new PostboxError(fault.code, fault.text);
    this.#hasSchema = true;
  }

  async schemaFault(session: Session) {
    const versions = await session
      .run(`SELECT MAX(version) AS version FROM ${this.t.version}`)
      .catch((error: unknown) => {
        if (!isTableMissing(error)) throw error;
        return undefined;
      });
    if (versions === undefined) {
      return {
        code: "schema-missing",
        text: `the database '${this.database}' has no tables of postbox; ${migrateFirst}`,
      } as const;
    }
    const version = Number(versions.rows[0]?.version ?? 0);
    if (version === schemaVersion) return undefined;
    if (version < schemaVersion) {
      const text =
        `the tables of postbox in '${this.database}' have version ${version}, this postbox needs ${schemaVersion}; ` +
        migrateFirst;
      return { code: "schema-outdated", text, version, needed: schemaVersion } as const;
    }
    const text =
      `the tables of postbox in '${this.database}' are newer than version ${schemaVersion}, ` +
      "which this postbox knows; update postbox here";
    return { code: "schema-newer", text, version, needed: schemaVersion } as const;
  }

  /** The number of a box, which is created if it was never used. */
  async box(name: string): Promise<number> {
    requireBox(name);
    return this.#boxes.get(name) ?? (await this.#made(name));
  }

  async #made(name: string): Promise<number> {
    if (Buffer.byteLength(name) > 1024) {
      throw new ConfigError("option-invalid", `the name of the box '${name}' is longer than 1,024 bytes`, {
        path: "box",
      });
    }
    const { t } = this;
    const bytes = Buffer.from(name);
    const existing = await this.number(name);
    if (existing !== undefined) return existing;
    try {
      await this.transact(async (session) => {
        await session.run(`INSERT INTO ${t.box} (name) VALUES (?)`, [bytes]);
        const lanes = Array.from({ length: laneCount }, (_, lane) => `(LAST_INSERT_ID(), ${lane})`);
        await session.run(`INSERT INTO ${t.lane} (box, lane) VALUES ${lanes.join(", ")}`);
      });
    } catch (error) {
      // Another process has created it meanwhile.
      if (mysqlNumber(error) !== duplicateEntry) throw error;
    }
    return Number(await this.number(name));
  }

  /** The number of a box; undefined if it was never used. */
  async number(name: string): Promise<number | undefined> {
    requireBox(name);
    const known = this.#boxes.get(name);
    if (known !== undefined) return known;
    const found = await this.read(async (session) => {
      const { rows } = await session.run(`SELECT number FROM ${this.t.box} WHERE name = ?`, [Buffer.from(name)]);
      return rows[0];
    });
    if (found === undefined) return undefined;
    this.#boxes.set(name, Number(found.number));
    return Number(found.number);
  }

  /** The number of a box that an operator names. Throws if it was never used. */
  async used(name: string): Promise<number> {
    const number = await this.number(name);
    if (number !== undefined) return number;
    const names = (await this.boxNames()).join(", ");
    const text = `there is no box '${name}', since no such consumer has run; the boxes are ${names}`;
    throw new ConfigError("option-invalid", text, { path: "box" });
  }

  boxNames(): Promise<readonly string[]> {
    return this.read(async (session) => {
      const { rows } = await session.run(`SELECT name FROM ${this.t.box} ORDER BY number`);
      return rows.map(({ name }) => String(name));
    });
  }

  /** The server's clock, in ms. */
  now(): Promise<number> {
    return this.read(clockOf);
  }
}

type Statement = readonly [sql: string, params?: readonly unknown[]];

/** A transaction of the store. BEGIN is sent together with its first statement, to save a round trip. */
export class Transaction implements Session {
  readonly #session: Session;
  readonly #begin: readonly Statement[];
  #state: "new" | "open" | "over" = "new";

  constructor(session: Session, begin: readonly Statement[] = [["START TRANSACTION"]]) {
    this.#session = session;
    this.#begin = begin;
  }

  async run(sql: string, params?: readonly unknown[]): Promise<Answer> {
    if (this.#state === "new") return (await this.runAll([[sql, params]]))[0] as Answer;
    return this.#session.run(sql, params);
  }

  async runAll(statements: readonly Statement[]): Promise<readonly Answer[]> {
    const begin = this.#state === "new" ? this.#begin : [];
    if (this.#state === "new") this.#state = "open";
    return (await this.#session.runAll([...begin, ...statements])).slice(begin.length);
  }

  /** Runs the last statements together with COMMIT. */
  async commitWith(statements: readonly Statement[]): Promise<readonly Answer[]> {
    const answers = await this.runAll([...statements, ["COMMIT"]]);
    this.#state = "over";
    return answers;
  }

  async commit(): Promise<void> {
    if (this.#state === "open") await this.#session.run("COMMIT");
    this.#state = "over";
  }

  /** Its failure hides nothing: the connection is lost then, and not used again. */
  async rollback(): Promise<void> {
    if (this.#state === "open") await this.#session.run("ROLLBACK").catch(() => {});
    this.#state = "over";
  }
}

export async function clockOf(session: Session): Promise<number> {
  const { rows } = await session.run(`SELECT ${nowSql} AS now`);
  return msOf(rows[0]?.now);
}

/** Commits what `work` did, or rolls it back. A lock timeout undoes only its own statement, so all is rolled back. */
async function ended<R>(transaction: Transaction, work: () => Promise<R>): Promise<R> {
  try {
    const result = await work();
    await transaction.commit();
    return result;
  } catch (error) {
    await transaction.rollback();
    throw error;
  }
}

function databaseOf(pool: MysqlPool): string {
  const database = partsOf(pool).config?.connectionConfig?.database;
  if (database !== undefined && database !== "") return database;
  throw new ConfigError(
    "option-invalid",
    "mysqlStore: the pool has no database, so it is unknown where the tables are; " +
      "give the pool a database, or the store the option 'database'",
    { path: "database" },
  );
}

/** Passes on errors that say what to do, and explains the others. */
export async function failing<R>(what: string, database: string, work: () => Promise<R>): Promise<R> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof PostboxError || (error instanceof Error && error.name === "AbortError")) throw error;
    if (isUnavailable(error) || isMysqlRefused(error)) throw error;
    if (isTableMissing(error)) {
      const text = `the database '${database}' has no tables of postbox; ${migrateFirst}`;
      throw new PostboxError("schema-missing", text, { cause: error });
    }
    if (mysqlNumber(error) === undefined) throw error;
    throw new PostboxError("store-failed", `${what} in MySQL: ${reasonOf(error)}`, { cause: error });
  }
}
