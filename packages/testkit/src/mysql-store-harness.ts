import { createHash, randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import { connect } from "node:net";
import { createConnection, createPool, type Pool, type PoolOptions } from "mysql2/promise";
import { inboxOf } from "postbox";
import { mysqlStore } from "postbox/mysql";
import type { TransactionLibrary } from "postbox/store";
import type { StoreFeatures, StoreHarness, StoreHarnessContents, StoreProcess } from "./store-suite/store-harness.js";

/** What the store on MySQL and MariaDB claims in its suites. */
export const mysqlStoreFeatures: StoreFeatures = {
  concurrentTransactions: true,
  migrations: true,
  lateCommits: true,
  isolationLevels: true,
  // Only a deadlock rolls back everything.
  abortsOnError: false,
  foreignTransactions: false,
  processes: true,
};

/** Options of `mysqlTestData`. */
export interface MysqlTestDataOptions<Tx> {
  /** The server, with a user that may create databases. */
  readonly url: string;
  /** How its users make a pool, without a database; for example with options of their own. Defaults to none. */
  readonly pool?: PoolOptions;
  transactions(pool: Pool): TransactionLibrary<Tx, "mysql">;
  /** What a user of this library may pass instead of a transaction. Defaults to none. */
  impostors?(pool: Pool): readonly unknown[];
}

/** A database of its own on a server, for one test file. */
export interface MysqlTestData<Tx> {
  readonly database: string;
  readonly pool: Pool;
  /** Empties the database; creates it first if necessary. */
  create(): Promise<StoreHarness<Tx>>;
  drop(): Promise<void>;
}

/**
 * A store in MySQL for `storeSuite`, with the transactions of any library. Its sessions have no database of their own,
 * so that every statement has to name it.
 *
 * @example
 * ```ts
 * const data = mysqlTestData({ url: "mysql://root@127.0.0.1", transactions: mysql2Transactions });
 * ```
 */
export function mysqlTestData<Tx>(options: MysqlTestDataOptions<Tx>): MysqlTestData<Tx> {
  const database = `test_${randomBytes(6).toString("hex")}`;
  const open = (stream?: () => Socket) => {
    const { hostname: host, port, username, password } = new URL(options.url);
    return createPool({
      host,
      port: Number(port || 3306),
      user: decodeURIComponent(username),
      password: decodeURIComponent(password),
      ...options.pool,
      ...(stream && { stream }),
    });
  };
  const pool = open();
  const transactions = options.transactions(pool);
  const another = () => mysqlStore({ pool, database, transactions });
  /** Beside the pool, whose settings the tests may choose. */
  const outside = createPool({ uri: options.url, connectionLimit: 2, supportBigNumbers: true });
  const select = async (sql: string, params: unknown[] = []) =>
    (await outside.query(sql.replaceAll("{}", `\`${database}\``), params as never))[0] as Record<string, unknown>[];
  let migrated: Promise<unknown> | undefined;

  const harness: StoreHarness<Tx> = {
    store: another(),
    another,
    async effect(tx, name) {
      await transactions.executor(tx)(`INSERT INTO \`${database}\`.effect (name) VALUES (?)`, [Buffer.from(name)]);
    },
    effects: async () => (await select("SELECT name FROM {}.effect ORDER BY place")).map(({ name }) => String(name)),
    async advance(ms) {
      for (const [table, columns] of Object.entries(times)) {
        const earlier = columns.map((column) => `${column} = ${column} - ${Math.round(ms * 1000)}`);
        await unlessDeadlocked(() => select(`UPDATE {}.postbox_${table} SET ${earlier.join(", ")}`));
      }
    },
    now: () => Date.now(),
    contents: (box) => contentsOf(select, box),
    async fingerprint() {
      const hash = createHash("sha256");
      for (const table of Object.keys(order)) {
        const rows = await select(`SELECT * FROM {}.postbox_${table} ORDER BY ${order[table]}`);
        hash.update(JSON.stringify([table, rows]));
      }
      return hash.digest("hex");
    },
    process: async () => startProcess(open, database, options),
    impostors: () => options.impostors?.(pool) ?? [],
    async close() {},
  };

  return {
    database,
    pool,
    async create() {
      migrated ??= (async () => {
        await select("CREATE DATABASE IF NOT EXISTS {}");
        await another().migrate();
        await select(
          "CREATE TABLE {}.effect (place BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(255)) ENGINE=InnoDB",
        );
      })();
      await migrated;
      for (const table of emptied) await select(`DELETE FROM {}.${table}`);
      await select("DELETE FROM {}.postbox_lane WHERE box <> 1");
      await select("UPDATE {}.postbox_lane SET owner = NULL, clean = TRUE");
      await select("DELETE FROM {}.postbox_box WHERE number <> 1");
      await select("UPDATE {}.postbox_box SET paused_at = NULL, cleaner = NULL, cleaner_until = NULL");
      await another().box(inboxOf("other")).release("nobody");
      return { ...harness, store: another() };
    },
    async drop() {
      await pool.end();
      await select("DROP DATABASE IF EXISTS {}");
      await outside.end();
    },
  };
}

type Select = (sql: string, params?: unknown[]) => Promise<Record<string, unknown>[]>;

/** How the rows of each table are ordered in a fingerprint. */
const order: Readonly<Record<string, string>> = {
  box: "number",
  lane: "box, lane",
  member: "box, owner",
  pending: "position",
  waiting: "position",
  hold: "box, lane, name",
  scheduled: "position",
  parked: "position",
  done: "number",
  handled: "number",
  schedule: "name",
  audit: "number",
};

const emptied = [
  "postbox_member",
  "postbox_pending",
  "postbox_waiting",
  "postbox_hold",
  "postbox_scheduled",
  "postbox_parked",
  "postbox_done",
  "postbox_handled",
  "postbox_schedule",
  "postbox_audit",
  "effect",
];

const times = {
  box: ["paused_at", "cleaner_until", "forgotten_until"],
  member: ["expires_at"],
  pending: ["created_at"],
  waiting: ["created_at", "updated_at"],
  hold: ["due_at"],
  scheduled: ["created_at", "due_at"],
  parked: ["created_at", "updated_at"],
  done: ["created_at", "updated_at"],
  handled: ["created_at", "since", "handled_at"],
  schedule: ["last_tick"],
  audit: ["at"],
};

async function contentsOf(select: Select, name: string): Promise<StoreHarnessContents> {
  const box = "box = (SELECT number FROM {}.postbox_box WHERE name = ?)";
  const params = [Buffer.from(name)];
  const ids = async (table: string) =>
    (await select(`SELECT id FROM {}.postbox_${table} WHERE ${box} ORDER BY position`, params)).map(({ id }) =>
      String(id),
    );
  const holds = await select(`SELECT name FROM {}.postbox_hold WHERE ${box}`, params);
  const parked = await select(
    `SELECT id, last_error AS error FROM {}.postbox_parked WHERE ${box} ORDER BY position`,
    params,
  );
  const handled = await select(
    `SELECT id FROM {}.postbox_handled WHERE ${box} AND handled_at IS NOT NULL ORDER BY number`,
    params,
  );
  return {
    pending: await ids("pending"),
    wait: await ids("waiting"),
    holds: holds
      .map(({ name: held }) => (String(held).startsWith("\u0001") ? String(held).slice(1) : String(held)))
      .sort(),
    scheduled: await ids("scheduled"),
    parked: parked.map(({ id, error }) => ({ id: String(id), error: String(error) })),
    done: name === "outbox" ? await ids("done") : handled.map(({ id }) => String(id)),
  };
}

/** Killing it cuts its connections on this side and ends their transactions on the server. */
function startProcess<Tx>(
  open: (stream: () => Socket) => Pool,
  database: string,
  { url, transactions }: MysqlTestDataOptions<Tx>,
): StoreProcess<Tx> {
  const { hostname, port } = new URL(url);
  const sockets: Socket[] = [];
  let dead = false;
  const own = open(() => {
    if (dead) throw new Error("this process is dead");
    const socket = connect(Number(port || 3306), hostname);
    socket.setNoDelay(true);
    sockets.push(socket);
    return socket;
  });
  return {
    store: mysqlStore({ pool: own, database, transactions: transactions(own) }),
    async kill() {
      dead = true;
      const ports = sockets.map(({ localPort }) => localPort).filter((localPort) => localPort !== undefined);
      const ending = own.end().catch(() => {});
      for (const socket of sockets) socket.destroy();
      await endSessions(url, ports);
      await ending;
    },
  };
}

/** Ends the sessions that came from these ports, and waits until they are gone. */
async function endSessions(url: string, ports: readonly number[]): Promise<void> {
  const admin = await createConnection(url);
  try {
    for (;;) {
      const [rows] = await admin.query("SELECT id, host FROM information_schema.processlist");
      const left = (rows as { id?: number; ID?: number; host?: string; HOST?: string }[]).filter(({ host, HOST }) =>
        ports.includes(Number((host ?? HOST)?.split(":").at(-1))),
      );
      if (left.length === 0) return;
      for (const { id, ID } of left) await admin.query(`KILL ${id ?? ID}`).catch(() => {});
    }
  } finally {
    admin.destroy();
  }
}

const deadlocked = 1213;

/** Repeats a statement that the server ended because of a deadlock: it walks a whole table that relays work on. */
async function unlessDeadlocked(statement: () => Promise<unknown>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await statement();
      return;
    } catch (error) {
      if ((error as { readonly errno?: unknown }).errno !== deadlocked || attempt === 50) throw error;
    }
  }
}
