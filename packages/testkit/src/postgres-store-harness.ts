import { createHash, randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import type { Client, ClientConfig, Pool } from "pg";
import { inboxOf } from "postbox";
import { postgresStore } from "postbox/postgres";
import type { TransactionLibrary } from "postbox/store";
import type { StoreFeatures, StoreHarness, StoreHarnessContents, StoreProcess } from "./store-suite/store-harness.js";

/** What the store on PostgreSQL claims in its suites. */
export const postgresStoreFeatures: StoreFeatures = {
  concurrentTransactions: true,
  migrations: true,
  lateCommits: true,
  isolationLevels: true,
  abortsOnError: true,
  foreignTransactions: false,
  processes: true,
};

/** Options of `postgresTestData`. */
export interface PostgresTestDataOptions<Tx> {
  /** Opens a pool for the tests, which `drop` ends, and another one for each process that a test starts. */
  connect(): Pool;
  transactions(pool: Pool): TransactionLibrary<Tx, "postgres">;
  /** What a user of this library may pass instead of a transaction. Defaults to none. */
  impostors?(pool: Pool): readonly unknown[];
}

/** A schema of its own on a PostgreSQL server, for one test file. */
export interface PostgresTestData<Tx> {
  readonly schema: string;
  readonly pool: Pool;
  /** Empties the schema; creates it first if necessary. */
  create(): Promise<StoreHarness<Tx>>;
  drop(): Promise<void>;
}

const boxes = ["outbox", "inbox"];

/**
 * A PostgreSQL store for `storeSuite`, with the transactions of any library.
 *
 * @example
 * ```ts
 * const data = postgresTestData({ connect: () => new Pool(), transactions: pgTransactions });
 * ```
 */
export function postgresTestData<Tx>(options: PostgresTestDataOptions<Tx>): PostgresTestData<Tx> {
  const schema = `test_${randomBytes(6).toString("hex")}`;
  const pool = named(schema, options.connect());
  const transactions = options.transactions(pool);
  const another = () => postgresStore({ pool, transactions, schema });
  let migrated: Promise<unknown> | undefined;

  const harness: StoreHarness<Tx> = {
    store: another(),
    rowByRow: { partitions: false },
    another,
    async effect(tx, name) {
      await transactions.executor(tx)(`INSERT INTO ${schema}.effect VALUES ($1)`, [name]);
    },
    effects: async () =>
      (await pool.query(`SELECT name FROM ${schema}.effect ORDER BY place`)).rows.map(({ name }) => name),
    advance: (ms) => advance(pool, schema, ms),
    now: () => Date.now(),
    contents: (box) => contentsOf(pool, schema, box),
    fingerprint: () => fingerprintOf(pool, schema),
    async breakTransaction(tx) {
      await transactions
        .executor(tx)("SELECT 1 / 0", [])
        .catch(() => {});
    },
    process: async () => startProcess(options, pool, schema),
    impostors: () => options.impostors?.(pool) ?? [],
    async close() {},
  };

  return {
    schema,
    pool,
    async create() {
      migrated ??= another()
        .migrate()
        .then(() => pool.query(`CREATE TABLE ${schema}.effect (name text, place bigint GENERATED ALWAYS AS IDENTITY)`));
      await migrated;
      await empty(pool, schema);
      await another().box(inboxOf("other")).release("nobody");
      return { ...harness, store: another() };
    },
    async drop() {
      // What a failed test has left open must not block the report of the others.
      await endSessions(pool, schema);
      await pool.query(`SET lock_timeout = '10s'; DROP SCHEMA IF EXISTS ${schema} CASCADE`);
      await pool.end();
    },
  };
}

/**
 * Ends the transactions of the sessions with this name, except the calling one. An idle session has no transaction, and
 * behind a pooler another client may be using it. The same holds for one that is being renamed, which still has this
 * name meanwhile.
 */
async function endSessions(pool: Pool, name: string): Promise<void> {
  // The second argument waits until each has ended.
  await pool.query(
    `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
     WHERE application_name = $1 AND state <> 'idle' AND pid <> pg_backend_pid()
       AND NOT (state = 'active' AND query ILIKE 'SET application_name%')`,
    [name],
  );
}

/** Much faster than creating a new schema for each fact. */
async function empty(pool: Pool, schema: string): Promise<void> {
  const parts = ["pending", "wait", "hold", "member", "scheduled", "parked", "done", "overflow"];
  const shared = ["inbox_message", "effect", "audit", "schedule"];
  const tables = [...boxes.flatMap((box) => parts.map((part) => `${box}_${part}`)), ...shared];
  await pool.query(
    tables.map((table) => `DELETE FROM ${schema}.${table};`).join("") +
      `UPDATE ${schema}.outbox_lane SET owner = NULL, clean = true;
       DELETE FROM ${schema}.inbox_lane; DELETE FROM ${schema}.box WHERE name <> 'outbox';
       UPDATE ${schema}.box SET paused_at = NULL, cleaner = NULL, cleaner_until = NULL, forgotten_until = NULL`,
  );
}

const timesOfBox = {
  pending: ["created_at"],
  wait: ["created_at", "updated_at"],
  hold: ["due_at"],
  member: ["expires_at"],
  scheduled: ["created_at", "due_at"],
  parked: ["created_at", "parked_at"],
  overflow: ["created_at", "done_at"],
};
const sharedTimes = {
  box: ["paused_at", "cleaner_until", "forgotten_until"],
  audit: ["at"],
  schedule: ["last_tick"],
  inbox_message: ["since", "received_at", "processed_at"],
};

async function advance(pool: Pool, schema: string, ms: number): Promise<void> {
  const shift = async (table: string, columns: readonly string[]) => {
    const earlier = columns.map((column) => `${column} = ${column} - interval '1 ms' * $1`);
    await pool.query(`UPDATE ${schema}.${table} SET ${earlier.join(", ")}`, [ms]);
  };
  for (const box of boxes) {
    // A shifted time may have no partition; the overflow table accepts any.
    await pool.query(
      `WITH moved AS (DELETE FROM ${schema}.${box}_done RETURNING *) INSERT INTO ${schema}.${box}_overflow SELECT * FROM moved`,
    );
    for (const [part, columns] of Object.entries(timesOfBox)) await shift(`${box}_${part}`, columns);
  }
  for (const [table, columns] of Object.entries(sharedTimes)) await shift(table, columns);
}

/** Covers every table of the schema, including those that later versions add; partitions are tables, too. */
async function fingerprintOf(pool: Pool, schema: string): Promise<string> {
  const tables = await pool.query(
    "SELECT relname AS name FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind = 'r' ORDER BY relname",
    [schema],
  );
  const hash = createHash("sha256");
  for (const { name } of tables.rows) {
    const rows = await pool.query(`SELECT t::text AS row FROM ${schema}."${name}" t ORDER BY t::text`);
    hash.update(JSON.stringify([name, rows.rows.map(({ row }) => row)]));
  }
  return hash.digest("hex");
}

async function contentsOf(pool: Pool, schema: string, name: string): Promise<StoreHarnessContents> {
  const [box, consumer] = name.split("/");
  const own = `box = (SELECT number FROM ${schema}.box WHERE name = '${name}')`;
  const idsIn = async (part: string) =>
    (await pool.query(`SELECT id FROM ${schema}.${box}_${part} WHERE ${own} ORDER BY position`)).rows.map(
      ({ id }) => id,
    );
  const holds = await pool.query(
    `SELECT ltrim(key, chr(1)) AS key FROM ${schema}.${box}_hold WHERE ${own} ORDER BY key`,
  );
  const kept =
    consumer === undefined
      ? `SELECT id, position FROM ${schema}.${box}_done UNION ALL SELECT id, position FROM ${schema}.${box}_overflow`
      : `SELECT id, received_at AS position FROM ${schema}.inbox_message WHERE consumer = '${consumer}' AND processed_at IS NOT NULL`;
  const done = await pool.query(`SELECT id FROM (${kept}) AS kept ORDER BY position`);
  const parked = await pool.query(
    `SELECT id, reason AS error FROM ${schema}.${box}_parked WHERE ${own} ORDER BY position`,
  );
  return {
    pending: await idsIn("pending"),
    wait: await idsIn("wait"),
    holds: holds.rows.map(({ key }) => key),
    scheduled: await idsIn("scheduled"),
    parked: parked.rows,
    done: done.rows.map(({ id }) => id),
  };
}

/**
 * A pool whose sessions have this name on the server. Behind a pooler, a session without a name has its predecessor's.
 */
function named(name: string, pool: Pool): Pool {
  Object.assign(pool.options, { application_name: name });
  return pool;
}

/**
 * Killing it cuts its connections on this side and ends their transactions on the server. There they are identified by
 * name and not by the process ids that clients were told, since a pooler makes those up.
 */
function startProcess<Tx>(options: PostgresTestDataOptions<Tx>, pool: Pool, schema: string): StoreProcess<Tx> {
  const name = `process_${randomBytes(6).toString("hex")}`;
  const own = named(name, options.connect());
  const sockets: Socket[] = [];
  let dead = false;
  const driver = own as unknown as { Client: new (config: ClientConfig) => Client };
  // Connections opened beside the pool belong to this process, too.
  driver.Client = class extends driver.Client {
    constructor(config: ClientConfig) {
      if (dead) throw new Error("this process is dead");
      super(config);
      sockets.push((this as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream);
      this.on("error", () => {});
    }
  };
  return {
    store: postgresStore({ pool: own, transactions: options.transactions(own), schema }),
    async kill() {
      dead = true;
      const ending = own.end().catch(() => {});
      for (const socket of sockets) socket.destroy();
      await endSessions(pool, name);
      if (own.totalCount === 0) await ending;
    },
  };
}
