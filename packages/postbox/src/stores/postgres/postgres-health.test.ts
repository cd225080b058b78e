import { testMessage, testMessages } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import type { Health, HealthOptions } from "../../health.js";
import { pgTransactions } from "../../transactions/pg.js";
import { schemaVersion } from "./migrations.js";
import { boxTables } from "./names.js";
import { type CheckedLimits, checkLimits } from "./postgres-limits.js";
import type { PostgresHealthOptions, PostgresHealthProblem } from "./postgres-problems.js";
import { type PostgresStore, postgresStore } from "./postgres-store.js";
import { type HolderRecord, type TableRecord, tableProblems, type Upkeep, vacuumHeldBack } from "./upkeep-problems.js";

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

const codes = ({ problems }: Health<PostgresHealthProblem>) => problems.map(({ code }) => code);
function problem<C extends PostgresHealthProblem["code"]>({ problems }: Health<PostgresHealthProblem>, code: C) {
  return problems.find((each) => each.code === code) as Extract<PostgresHealthProblem, { code: C }> | undefined;
}

describe("the health of a store without a database", () => {
  it("says that it cannot be reached, and why", async () => {
    const pool = new pg.Pool({ host: "127.0.0.1", port: 1 });
    const health = await postgresStore({ pool }).health();
    expect(health).toMatchObject({ healthy: false, problems: [{ code: "unreachable", timedOut: false }] });
    expect(health.problems[0]?.text).toMatch(
      /cannot be reached: connect ECONNREFUSED 127\.0\.0\.1:1; check that it runs/,
    );
  });

  it("refuses a bad option without asking the database", async () => {
    const pool = new pg.Pool({ host: "127.0.0.1", port: 1 });
    const wrong: Record<Exclude<keyof PostgresHealthOptions, keyof HealthOptions>, readonly unknown[]> = {
      transactionAgeMs: [-1, null],
      partitionsAheadMs: [-1, {}],
      tableBytes: [-1, 1.5],
      deadSpaceBytes: [-1, "1 GB"],
    };
    for (const [path, values] of Object.entries(wrong)) {
      for (const value of values) {
        const health = postgresStore({ pool }).health({ [path]: value });
        await expect(health, `${path}: ${value}`).rejects.toMatchObject({ code: "option-invalid", path });
      }
    }
    await expect(postgresStore({ pool }).health({ box: "x" })).rejects.toThrow("there is no box 'x'");
  });
});

// Tests cannot produce these problems on a server that other tests use, too.
/** All problems of the outbox's tables. */
const upkeepProblems = (upkeep: Upkeep, limits: CheckedLimits) => [
  ...vacuumHeldBack(upkeep, limits),
  ...tableProblems("outbox", upkeep, limits),
];

describe("the problems of tables", () => {
  const limits = checkLimits({ transactionAgeMs: 1000 });
  const fine: Upkeep = { now: 0, holders: null, writers: null, sequence: null, tables: [], partitions: null };
  const holder: HolderRecord = {
    kind: "transaction",
    name: "17",
    user: "ann",
    application: "report",
    state: null,
    query: null,
    active: null,
    ageMs: null,
    transactions: 5,
  };
  const heldBack = (...holders: readonly Partial<HolderRecord>[]) =>
    upkeepProblems({ ...fine, holders: holders.map((each) => ({ ...holder, ...each })) }, limits);

  it("has nothing to say where nothing is wrong", () => {
    expect(upkeepProblems(fine, limits)).toEqual([]);
    expect(heldBack({ ageMs: 1000 })).toEqual([]);
  });

  it("says what it may not see of another role's transaction", () => {
    const query = "<insufficient privilege>";
    expect(heldBack({ transactions: 999_999, query })).toEqual([]);
    const [found] = heldBack({ transactions: 1_000_000, query });
    expect(found).toMatchObject({
      code: "vacuum-held-back",
      transactions: 1_000_000,
      holder: { kind: "transaction", pid: 17, user: "ann", application: "report" },
    });
    expect(found).not.toHaveProperty("holder.query");
    expect(found?.text).toContain("this role may not see its age and its statement: grant it pg_monitor");
  });

  it("names a replication slot that is unused, or whose standby is far behind", () => {
    const slot = { kind: "replication slot", name: "standby_1" } as const;
    expect(heldBack({ ...slot, active: true })).toEqual([]);
    expect(heldBack({ ...slot, active: false, ageMs: 900 })).toEqual([]);
    for (const since of [null, 1100]) {
      const [found] = heldBack({ ...slot, active: false, ageMs: since });
      expect(found).toMatchObject({ holder: { kind: "replication slot", slot: "standby_1", active: false } });
      expect(found?.text).toContain("pg_drop_replication_slot");
    }
    const [far] = heldBack({ ...slot, active: true, transactions: 2_000_000 });
    expect(far?.text).toMatch(/the last 2,000,000 transactions.*standby runs a long transaction/);
  });

  it("names a standby that is far behind without a slot", () => {
    const sender = { name: "18", user: "replicator", state: "active", query: "START_REPLICATION" };
    expect(heldBack(sender)).toEqual([]);
    const [found] = heldBack({ ...sender, transactions: 1_000_000 });
    expect(found?.text).toContain("a long transaction on the standby of replicator, pid 18; end it there");
  });

  it("names a prepared transaction that is never ended", () => {
    const prepared = { kind: "prepared transaction", name: "order-17" } as const;
    expect(heldBack({ ...prepared, ageMs: 900 })).toEqual([]);
    const [found] = heldBack({ ...prepared, ageMs: 2000 });
    expect(found).toMatchObject({
      holder: { kind: "prepared transaction", gid: "order-17", user: "ann", ageMs: 2000 },
    });
    expect(found?.text).toContain("ROLLBACK PREPARED");
  });

  it("names the one that holds back most, and counts the others", () => {
    const old = { ageMs: 2000, state: "active", query: "SELECT 1" };
    const [found, ...rest] = heldBack({ ...old, name: "1", transactions: 9 }, { ...old, name: "2" }, { ageMs: 1 });
    expect(rest).toEqual([]);
    expect(found).toMatchObject({ transactions: 9, others: 1, holder: { pid: 1 } });
  });

  const pending: TableRecord = { part: "pending", table: "s.outbox_pending", bytes: 0, liveRows: 0, rowBytes: 400 };
  const heavy = (more: Partial<TableRecord>) => upkeepProblems({ ...fine, tables: [{ ...pending, ...more }] }, limits);
  const megabyte = 1024 * 1024;

  it("distinguishes a table of dead space from one that is full or was never counted", () => {
    expect(heavy({ bytes: 100 * megabyte })).toEqual([]);
    expect(heavy({ bytes: 101 * megabyte, liveRows: -1 })).toEqual([]);
    expect(heavy({ bytes: 200 * megabyte, liveRows: 50_000 })).toEqual([]);
    const [found] = heavy({ bytes: 200 * megabyte, liveRows: 1000 });
    expect(found).toMatchObject({ code: "table-heavy", dead: true, liveRows: 1000, bytes: 200 * megabyte });
    expect(found?.text).toMatch(
      /takes 200\.0 MiB for about 1,000 rows: the rest is dead space.*VACUUM FULL s\.outbox_pending/,
    );
  });

  it("names a table that is large, and why it may be", () => {
    const [found] = heavy({ bytes: 11 * 1024 * megabyte, liveRows: 20_000_000 });
    expect(found).toMatchObject({ dead: false });
    expect(found?.text).toMatch(/11\.0 GiB.*10\.0 GiB is the limit: more is appended than sent/);
  });

  const covered = (now: number, ...partitions: readonly [number | null, number | null][]) =>
    upkeepProblems({ ...fine, now, partitions: partitions.map(([from, to]) => ({ from, to })) }, limits);

  it("looks for partitions without a gap", () => {
    expect(covered(5, [0, 10], [10, 2 * dayMs])).toEqual([]);
    expect(covered(5, [10, 2 * dayMs], [0, 10])).toEqual([]);
    expect(covered(5, [0, 10], [11, 2 * dayMs])).toMatchObject([{ code: "partition-missing", aheadMs: 5 }]);
    expect(covered(5, [10, 2 * dayMs])).toMatchObject([{ aheadMs: 0 }]);
    expect(covered(5, [null, null])).toEqual([]);
    expect(covered(5, [0, null])).toEqual([]);
  });

  it("reports that sent rows go to the overflow in spite of partitions", () => {
    const partitions = [{ from: 0, to: 9 * dayMs }];
    expect(upkeepProblems({ ...fine, partitions, overflowedMs: 60_000 }, limits)).toEqual([]);
    expect(upkeepProblems({ ...fine, partitions, overflowedMs: 10 }, limits)).toMatchObject([
      { code: "partition-missing", overflowing: true, aheadMs: 9 * dayMs },
    ]);
  });
});

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 8 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const t = boxTables(schema, "outbox");
  const store = postgresStore({ pool, schema });

  beforeEach(async () => {
    await data.create();
    const { rows } = await pool.query(
      `SELECT relname AS name FROM pg_class WHERE relnamespace = '${schema}'::regnamespace AND relispartition AND relkind = 'r'`,
    );
    for (const { name } of rows) await pool.query(`DROP TABLE ${schema}.${name}`);
    const box = store.box("outbox");
    await box.renew("relay-1", 60_000, "key");
    await box.own("relay-1", 64);
  });
  afterAll(data.drop);

  /** Runs `work` while another connection is in a transaction. */
  async function beside<R>(begin: string, work: (pid: number) => Promise<R>, where = url): Promise<R> {
    const client = new pg.Client({ connectionString: where, application_name: "reporting" });
    await client.connect();
    try {
      const { rows } = await client.query("SELECT pg_backend_pid() AS pid");
      await client.query(begin);
      return await work(rows[0].pid);
    } finally {
      await client.end();
    }
  }

  /** Uses a database of its own, where transactions of other tests hold back no vacuum. */
  async function alone(work: (store: PostgresStore<pg.ClientBase>, pool: pg.Pool, url: string) => Promise<void>) {
    const there = new URL(url);
    there.pathname = `${schema}_own`;
    await pool.query(`CREATE DATABASE ${schema}_own`);
    const own = new pg.Pool({ connectionString: there.href, max: 2 });
    const migrated = postgresStore({ pool: own });
    try {
      await migrated.migrate();
      await work(migrated, own, there.href);
    } finally {
      await own.end();
      await pool.query(`DROP DATABASE ${schema}_own WITH (FORCE)`);
    }
  }

  /** Uses a store of a role with exactly these rights. */
  async function as<R>(grants: (role: string) => string, work: (restricted: typeof store) => Promise<R>): Promise<R> {
    const role = `${schema}_watcher`;
    await pool.query(`CREATE ROLE ${role}; ${grants(role)}`);
    const own = new pg.Pool({ connectionString: url, options: `-c role=${role}`, max: 2 });
    try {
      return await work(postgresStore({ pool: own, schema }));
    } finally {
      await own.end();
      await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  }
  const mayRead = (role: string) =>
    `GRANT USAGE ON SCHEMA ${schema} TO ${role}; GRANT SELECT ON ALL TABLES IN SCHEMA ${schema} TO ${role}`;

  it("names a schema that is missing, and looks no further", async () => {
    const missing = await postgresStore({ pool, schema: `${schema}_none` }).health();
    expect(missing).toMatchObject({ healthy: false, problems: [{ code: "schema-missing", severity: "error" }] });
    expect(missing.problems[0]?.text).toContain("call store.migrate() once");
  });

  it("names a schema that is outdated or newer, and whatever it was before", async () => {
    const needed = schemaVersion;
    await store.health();
    await pool.query(`UPDATE ${schema}.migration SET version = version + 100`);
    try {
      expect(await store.health()).toMatchObject({
        healthy: false,
        problems: [{ code: "schema-newer", version: needed + 100, needed }],
      });
    } finally {
      await pool.query(`UPDATE ${schema}.migration SET version = version - 100`);
    }
    await pool.query(`UPDATE ${schema}.migration SET version = version - 100`);
    try {
      expect((await store.health()).problems).toMatchObject([
        {
          code: "schema-outdated",
          version: needed - 100,
          needed,
          text: expect.stringContaining("call store.migrate()"),
        },
      ]);
    } finally {
      await pool.query(`UPDATE ${schema}.migration SET version = version + 100`);
    }
    expect(await store.health()).toEqual({ healthy: true, problems: [] });
  });

  it("names a table that is missing, too", async () => {
    await pool.query(`ALTER TABLE ${t.parked} RENAME TO somewhere_else`);
    try {
      expect(codes(await store.health())).toEqual(["schema-missing"]);
    } finally {
      await pool.query(`ALTER TABLE ${schema}.somewhere_else RENAME TO outbox_parked`);
    }
    expect(codes(await store.health())).toEqual([]);
  });

  it("names a server that refuses it", async () => {
    const wrong = new URL(url);
    wrong.pathname = `${schema}_none`;
    const elsewhere = new pg.Pool({ connectionString: wrong.href });
    try {
      const health = await postgresStore({ pool: elsewhere, schema }).health();
      expect(health).toMatchObject({ healthy: false, problems: [{ code: "store-refused", sqlState: "3D000" }] });
      expect(health.problems[0]?.text).toContain("does not exist");
    } finally {
      await elsewhere.end();
    }
  });

  it("ends in time when it waits for a lock, and reports what it has found until then", async () => {
    await beside(`BEGIN; LOCK TABLE ${t.wait} IN ACCESS EXCLUSIVE MODE`, async () => {
      const health = await store.health({ timeoutMs: 200, tableBytes: 0 });
      const found = problem(health, "unreachable");
      expect(found).toMatchObject({ severity: "error", timedOut: true });
      expect(found?.text).toMatch(/no answer within 200 ms: .*waits for a lock/);
    });
    await beside(`BEGIN; LOCK TABLE ${t.lane} IN ACCESS EXCLUSIVE MODE`, async () => {
      const found = codes(await store.health({ timeoutMs: 200, tableBytes: 0 }));
      expect(found[0]).toBe("unreachable");
      expect(found).toContain("table-heavy");
    });
    expect(codes(await store.health())).toEqual([]);
  });

  it("looks over a connection of its own when the pool has none left", async () => {
    const own = new pg.Pool({ connectionString: url, max: 1 });
    const busy = postgresStore({ pool: own, schema });
    const client = await own.connect();
    try {
      for (let look = 0; look < 3; look++) expect(codes(await busy.health())).toEqual([]);
      expect(own.waitingCount).toBe(0);
    } finally {
      client.release();
      await own.end();
    }
    const left = `SELECT FROM pg_stat_activity WHERE application_name = 'postbox health' AND query LIKE '%${schema}%'`;
    await expect.poll(async () => (await pool.query(left)).rowCount).toBe(0);
  });

  it("ends in time when the pool has no connection and there is no other, and does not queue up there", async () => {
    const own = new pg.Pool({ connectionString: url, max: 1 });
    const client = await own.connect();
    // A pool that only imitates `pg`, so nothing tells how to connect outside of it.
    const busy = postgresStore({ pool: Object.assign(own, { Client: undefined }), schema });
    for (let look = 0; look < 3; look++) {
      const found = problem(await busy.health({ timeoutMs: 50 }), "unreachable");
      expect(found).toMatchObject({ timedOut: true });
      expect(found?.text).toContain("all 1 connections of the pool are in use, and 1 wait for one");
    }
    expect(own.waitingCount).toBe(1);
    client.release();
    expect(codes(await busy.health())).toEqual([]);
    expect([own.totalCount, own.idleCount, own.waitingCount]).toEqual([1, 1, 0]);
    await own.end();
  });

  it("names a sequence that gives positions out of order", async () => {
    await pool.query(`ALTER SEQUENCE ${schema}.outbox_pending_position_seq CACHE 20`);
    try {
      const found = problem(await store.health(), "sequence-altered");
      expect(found).toMatchObject({ severity: "error", cache: 20, increment: 1, cycles: false });
      expect(found?.text).toContain(`ALTER SEQUENCE ${schema}.outbox_pending_position_seq CACHE 1`);
    } finally {
      await pool.query(`ALTER SEQUENCE ${schema}.outbox_pending_position_seq CACHE 1`);
    }
    expect(codes(await store.health())).toEqual([]);
  });

  it("names the session of another database that a total order waits for", async () => {
    await alone(async (watched, own) => {
      const box = watched.box("outbox");
      await box.renew("relay-1", 60_000, "total");
      await box.own("relay-1", 64);
      const written = "BEGIN; CREATE TEMP TABLE written (n int)";
      await beside(written, async (pid) => {
        await watched.transaction((tx) => watched.append(tx, "outbox", [testMessage("m")]));
        const blocked = async () => problem(await watched.health({ unsentAgeMs: 1 }), "order-blocked");
        let found: Awaited<ReturnType<typeof blocked>>;
        // Other tests write on this server, too. An older transaction of theirs comes first, and ends.
        await expect
          .poll(async () => {
            found = await blocked();
            return found?.blocker;
          })
          .toMatchObject({ kind: "transaction", pid, application: "reporting" });
        const { rows } = await pool.query("SELECT current_database() AS name");
        expect(found?.blocker.database).toBe(rows[0].name);
        expect(found?.text).toContain(`pg_terminate_backend(${pid})`);
        await own.query("UPDATE postbox.outbox_member SET relay_order = 'key'");
        expect(await blocked()).toBeUndefined();
      });
    });
  });

  it("does not blame a short statement on its own tables for holding back vacuum", async () => {
    await alone(async (watched, _, there) => {
      const held = async () => problem(await watched.health({ transactionAgeMs: 0 }), "vacuum-held-back");
      const sleeping = async (text: string, work: () => Promise<void>) => {
        const client = new pg.Client({ connectionString: there });
        await client.connect();
        const { rows } = await client.query("SELECT pg_backend_pid() AS pid");
        const ended = client.query(text).catch(() => {});
        const runs = `SELECT FROM pg_stat_activity WHERE pid = ${rows[0].pid} AND wait_event = 'PgSleep'`;
        await expect.poll(async () => (await pool.query(runs)).rowCount).toBe(1);
        await work();
        await pool.query(`SELECT pg_cancel_backend(${rows[0].pid})`);
        await ended;
        await client.end();
      };
      const onOurs = 'SELECT pg_sleep(50) FROM "postbox"."outbox_lane" LIMIT 1';
      await sleeping(onOurs, async () => expect(await held()).toBeUndefined());
      await sleeping("SELECT pg_sleep(50) FROM pg_class LIMIT 1", async () => expect(await held()).toBeDefined());
    });
  });

  it("ends in time when a connection has gone silent, and closes it", async () => {
    const own = new pg.Pool({ connectionString: url, max: 1 });
    const silent = postgresStore({ pool: own, schema });
    const client = await own.connect();
    // As if the network dropped every packet: nothing arrives any more.
    (client as unknown as { connection: { stream: import("node:net").Socket } }).connection.stream.pause();
    client.release();
    const found = problem(await silent.health({ timeoutMs: 100 }), "unreachable");
    expect(found).toMatchObject({ timedOut: true });
    expect(codes(await silent.health())).toEqual([]);
    await own.end();
  });

  it("names the transaction that holds back vacuum, without the values in its statement", async () => {
    await alone(async (watched, _, there) => {
      const about = async (transactionAgeMs: number) =>
        problem(await watched.health({ transactionAgeMs }), "vacuum-held-back");
      expect(await about(0)).toBeUndefined();
      // It has read and written nothing, so it holds back nothing.
      await beside("BEGIN", async () => expect(await about(0)).toBeUndefined(), there);
      const begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 'hunter2' AS password, 17";
      const named = async (pid: number) => {
        const found = await about(0);
        const holder = { kind: "transaction", pid, application: "reporting", state: "idle in transaction" };
        const query = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT ? AS password, ?";
        expect(found).toMatchObject({ severity: "warning", others: 0, holder: { ...holder, query } });
        expect(found?.text).toContain(`pg_terminate_backend(${pid})`);
        expect(found?.text).not.toContain("hunter2");
        expect(await about(hourMs)).toBeUndefined();
      };
      await beside(begin, named, there);
      // A transaction in another database holds back nothing here.
      await beside(begin, async () => expect(await about(0)).toBeUndefined());
      // A transaction that has only written, too.
      const writes = "BEGIN; CREATE TABLE nothing ()";
      await beside(writes, async (pid) => expect(await about(0)).toMatchObject({ holder: { pid } }), there);
    });
  });

  it("looks on without the right to see others' sessions", async () => {
    const session = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
    await as(mayRead, (restricted) =>
      beside(session, async () => {
        const health = await restricted.health({ transactionAgeMs: 0 });
        expect(health).toEqual({ healthy: true, problems: [] });
      }),
    );
  });

  it("names a right that it lacks, and needs none to write", async () => {
    await as(mayRead, async (restricted) => {
      expect(await restricted.health()).toEqual({ healthy: true, problems: [] });
    });
    for (const grants of [() => "", (role: string) => `GRANT USAGE ON SCHEMA ${schema} TO ${role}`]) {
      await as(grants, async (restricted) => {
        const health = await restricted.health();
        expect(health).toMatchObject({ healthy: false, problems: [{ code: "unreadable", sqlState: "42501" }] });
        expect(health.problems[0]?.text).toMatch(/permission denied .*needs USAGE on the schema and SELECT/);
      });
    }
  });

  it("names missing partitions, once there are any", async () => {
    expect(codes(await store.health())).toEqual([]);
    const from = new Date(Math.floor(Date.now() / dayMs) * dayMs - 2 * dayMs);
    const bounds = `FROM ('${from.toISOString()}') TO ('${new Date(from.getTime() + dayMs).toISOString()}')`;
    await pool.query(`CREATE TABLE ${schema}.outbox_done_old PARTITION OF ${t.done} FOR VALUES ${bounds}`);
    const none = problem(await store.health(), "partition-missing");
    expect(none).toMatchObject({ severity: "warning", aheadMs: 0, overflowing: false });
    expect(none?.text).toContain("none for the present time");
    await store.purge({ retentionMs: 7 * dayMs });
    expect(codes(await store.health())).toEqual([]);
    const soon = problem(await store.health({ partitionsAheadMs: 30 * dayMs }), "partition-missing");
    expect(soon?.aheadMs).toBeGreaterThan(6 * dayMs);
    expect(soon?.aheadMs).toBeLessThanOrEqual(8 * dayMs);
    expect(soon?.text).toMatch(/for the next \d d.* only, and 30 d is the limit/);
  });

  it("reads partitions whatever the session's time zone and style of dates", async () => {
    await store.purge({ retentionMs: 7 * dayMs });
    const ahead = async (looking: typeof store) =>
      problem(await looking.health({ partitionsAheadMs: 30 * dayMs }), "partition-missing")?.aheadMs ?? 0;
    // Here the zone of a time is IST, which many servers read as Israel's.
    const options = "-c TimeZone=Asia/Kolkata -c DateStyle=German";
    const own = new pg.Pool({ connectionString: url, options, max: 1 });
    try {
      const [plain, odd] = [await ahead(store), await ahead(postgresStore({ pool: own, schema }))];
      expect(Math.abs(plain - odd)).toBeLessThan(hourMs);
    } finally {
      await own.end();
    }
  });

  it("reports rows that go to the overflow although there are partitions", async () => {
    const box = postgresStore({ pool, schema }).box("outbox");
    const finish = async (id: string) => {
      await store.transaction((tx) => store.append(tx, "outbox", [testMessage(id)]));
      const { lanes } = await box.renew("relay-1", 60_000, "key");
      const { rows } = await box.read(lanes.map(({ lane }) => ({ lane, limit: 10 })));
      await box.settle(
        lanes,
        rows.map((row) => ({ row, to: "sent" })),
        { keep: true },
      );
    };
    await finish("a");
    expect(codes(await store.health())).toEqual([]);
    // The store does not know these partitions yet.
    await store.purge({ retentionMs: 7 * dayMs });
    await finish("b");
    expect(problem(await store.health(), "partition-missing")).toMatchObject({ overflowing: true });
    await pool.query(`UPDATE ${t.overflow} SET done_at = done_at - interval '2 minutes'`);
    expect(codes(await store.health())).toEqual([]);
  });

  it("names tables that are too large, with all partitions of one", async () => {
    await store.purge({ retentionMs: 7 * dayMs });
    const large = (await store.health({ tableBytes: 0 })).problems.flatMap((each) =>
      each.code === "table-heavy" ? each : [],
    );
    const bytes = new Map(large.map((each) => [each.table, each.bytes]));
    for (const part of ["pending", "wait", "hold", "scheduled", "parked", "done", "overflow"]) {
      expect(bytes.get(`${schema}.outbox_${part}`), part).toBeGreaterThan(0);
    }
    const { rows } = await pool.query(
      `SELECT sum(pg_total_relation_size(inhrelid)) AS bytes FROM pg_inherits WHERE inhparent = '${t.done}'::regclass`,
    );
    expect(bytes.get(`${schema}.outbox_done`)).toBe(Number(rows[0].bytes));
  });

  it("names a table that is dead space for the most part, until that was given back", async () => {
    await alone(async (filled, own) => {
      const messages = testMessages("m", 2000, {
        data: new Uint8Array(1000),
        datacontenttype: "application/octet-stream",
      });
      const heavy = async () => problem(await filled.health({ deadSpaceBytes: 1_000_000 }), "table-heavy");
      await filled.transaction((tx) => filled.append(tx, "outbox", messages));
      await own.query("ANALYZE postbox.outbox_pending");
      expect(await heavy()).toBeUndefined();
      await own.query("DELETE FROM postbox.outbox_pending WHERE id <> 'm-0'");
      await own.query("ANALYZE postbox.outbox_pending");
      // Before version 15, statistics arrive a moment later.
      const dead = { table: "postbox.outbox_pending", dead: true, liveRows: 1 };
      await expect.poll(heavy).toMatchObject(dead);
      // VACUUM would not do: a session that is just connecting may keep it from removing rows.
      await own.query("TRUNCATE postbox.outbox_pending");
      await expect.poll(heavy).toBeUndefined();
    });
  });

  it("works where the server's transactions are stricter", async () => {
    const options = "-c default_transaction_isolation=serializable -c default_transaction_read_only=on";
    const own = new pg.Pool({ connectionString: url, options, max: 1 });
    try {
      expect(await postgresStore({ pool: own, schema }).health()).toEqual({ healthy: true, problems: [] });
    } finally {
      await own.end();
    }
  });
});
