import { gate, testMessage, testMessages } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { afterAll, beforeEach, expect, it, onTestFinished, vi } from "vitest";
import type { ArchivedMessage, PurgeOptions } from "../../admin.js";
import type { Message } from "../../message/message.js";
import type { Box, Lane, Row } from "../../store.js";
import { pgTransactions } from "../../transactions/pg.js";
import { boxTables } from "./names.js";
import { postgresStore } from "./postgres-store.js";

const dayMs = 24 * 3_600_000;
const week: PurgeOptions = { retentionMs: 7 * dayMs };

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 8 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const t = boxTables(schema, "outbox");
  const store = postgresStore({ pool, schema });
  let box: Box;
  let lanes: readonly Lane[];

  beforeEach(async () => {
    await data.create();
    for (const { name } of await partitions()) await pool.query(`DROP TABLE ${schema}.${name}`);
    await pool.query(`TRUNCATE ${t.overflow}`);
    // A new store each time, because one remembers for a while that there was no partition.
    box = postgresStore({ pool, schema }).box("outbox");
    await box.renew("relay-1", 60_000, "key");
    lanes = await box.own("relay-1", 64);
  });
  afterAll(data.drop);

  async function partitions(): Promise<readonly { readonly name: string }[]> {
    const { rows } = await pool.query(
      `SELECT relname AS name FROM pg_class WHERE relnamespace = '${schema}'::regnamespace AND relkind = 'r'
         AND relname ~ '^outbox_done_' ORDER BY relname`,
    );
    return rows;
  }

  /** Settles messages as sent. */
  async function settle(...messages: readonly Message[]): Promise<void> {
    await store.transaction((tx) => store.append(tx, "outbox", messages));
    const { rows } = await box.read(lanes.map(({ lane }) => ({ lane, limit: 1000 })));
    await box.settle(
      lanes,
      rows.map((row: Row) => ({ row, to: "sent" })),
      { keep: true },
    );
  }

  const idsIn = async (table: string): Promise<string[]> =>
    (await pool.query(`SELECT id FROM ${table} ORDER BY position`)).rows.map(({ id }) => id);

  /** Creates a partition of ten days ago with these messages. */
  async function old(...ids: readonly string[]): Promise<string> {
    const from = new Date(Math.floor((Date.now() - 10 * dayMs) / dayMs) * dayMs);
    const name = `outbox_done_${from.toISOString().slice(0, 10).replaceAll("-", "")}00`;
    const bounds = `FROM ('${from.toISOString()}') TO ('${new Date(from.getTime() + dayMs).toISOString()}')`;
    await pool.query(`CREATE TABLE ${schema}.${name} PARTITION OF ${t.done} FOR VALUES ${bounds}`);
    await settle(...ids.map((id) => testMessage(id)));
    await pool.query(
      `UPDATE ${t.overflow} SET done_at = $1::timestamptz + interval '1 hour';
       INSERT INTO ${t.done} SELECT * FROM ${t.overflow};
       TRUNCATE ${t.overflow}`.replace("$1", `'${from.toISOString()}'`),
    );
    return name;
  }

  it("makes partitions a week ahead, where what is done then goes, and makes none twice", async () => {
    expect(await store.purge(week)).toEqual({ busy: false, removed: 0, partitionsMade: 8, partitionsDropped: 0 });
    expect(await store.purge(week)).toMatchObject({ partitionsMade: 0 });
    await settle(...testMessages("m", 3));
    const [today] = await partitions();
    expect(await idsIn(`${schema}.${today?.name}`)).toHaveLength(3);
    expect(await idsIn(t.overflow)).toEqual([]);
  });

  it("settles into the overflow when there is no partition, whatever else is settled with it", async () => {
    await settle(...testMessages("m", 3));
    expect(await idsIn(t.overflow)).toHaveLength(3);
    await store.transaction((tx) => store.append(tx, "outbox", testMessages("n", 2)));
    const { rows } = await box.read(lanes.map(({ lane }) => ({ lane, limit: 10 })));
    const [first, second] = rows as [Row, Row];
    const parked = { row: second, to: "parked", attempts: 1, error: "no" } as const;
    await box.settle(lanes, [{ row: first, to: "sent" }, parked], { keep: true });
    expect(await idsIn(t.overflow)).toHaveLength(4);
    expect(await idsIn(t.pending)).toEqual([]);
  });

  it("drops partitions that are old enough, after the archive has got all that is in them", async () => {
    const name = await old("a", "b", "c");
    const archived: string[] = [];
    const archive: PurgeOptions["archive"] = async (messages) => {
      for (const { message, publishedAt } of messages) {
        archived.push(message.id);
        expect(Date.now() - publishedAt.getTime()).toBeGreaterThan(8 * dayMs);
      }
    };
    expect(await store.purge({ ...week, archive })).toMatchObject({ removed: 3, partitionsDropped: 1 });
    expect(archived).toEqual(["a", "b", "c"]);
    expect(await partitions()).not.toContainEqual({ name });
  });

  it("leaves everything where it was when the archive refuses", async () => {
    const name = await old("a", "b");
    const archive = () => Promise.reject(new Error("the archive is full"));
    await expect(store.purge({ ...week, archive })).rejects.toThrow("the archive is full");
    expect(await idsIn(t.done)).toEqual(["a", "b"]);
    expect(await partitions()).toContainEqual({ name });
    expect(await store.purge(week)).toMatchObject({ removed: 2, partitionsDropped: 1 });
  });

  it("ends what a cleaner began that died after it had cut a partition off", async () => {
    const name = await old("a");
    await pool.query(
      `ALTER TABLE ${t.done} DETACH PARTITION ${schema}.${name};
       ALTER TABLE ${schema}.${name} RENAME TO ${name.replace("done", "cut_off")}`,
    );
    const archived: string[] = [];
    const archive: PurgeOptions["archive"] = async (messages) =>
      void archived.push(...messages.map((m) => m.message.id));
    expect(await store.purge({ ...week, archive })).toMatchObject({ removed: 1, partitionsDropped: 1 });
    expect(archived).toEqual(["a"]);
  });

  it("drops no partition that an operator has detached to keep it", async () => {
    const name = await old("a");
    await pool.query(`ALTER TABLE ${t.done} DETACH PARTITION ${schema}.${name}`);
    expect(await store.purge(week)).toMatchObject({ removed: 0, partitionsDropped: 0 });
    expect(await partitions()).toContainEqual({ name });
  });

  it("puts back what it had cut off when it is told to end, and archives it another time", async () => {
    await old("a", "b");
    const stop = new AbortController();
    const archive = async () => stop.abort();
    expect(await store.purge({ ...week, archive, signal: stop.signal })).toMatchObject({ removed: 0, busy: false });
    expect(await idsIn(t.done)).toEqual(["a", "b"]);
    expect(await store.purge(week)).toMatchObject({ removed: 2, partitionsDropped: 1 });
  });

  it("deletes from partitions, too, where it is to leave them alone", async () => {
    const name = await old("a", "b");
    expect(await store.purge({ ...week, partitions: false })).toMatchObject({ removed: 2, partitionsDropped: 0 });
    expect(await idsIn(t.done)).toEqual([]);
    expect(await partitions()).toContainEqual({ name });
  });

  it("keeps what is done when a partition goes that it had counted on", async () => {
    await store.purge(week);
    await settle(...testMessages("m", 1));
    for (const { name } of await partitions()) await pool.query(`DROP TABLE ${schema}.${name}`);
    await settle(...testMessages("n", 2));
    expect(await idsIn(t.overflow)).toHaveLength(2);
  });

  it("gives up on a partition that is being read, while settles go on", async () => {
    const name = await old("a");
    const reading = gate();
    const release = gate();
    const reader = store.transaction(async (tx) => {
      await tx.query(`SELECT FROM ${t.done}`);
      reading.open();
      await release.opened;
    });
    await reading.opened;
    const purging = store.purge(week);
    await settle(...testMessages("m", 2));
    expect(await purging).toMatchObject({ removed: 0, partitionsDropped: 0 });
    release.open();
    await reader;
    expect(await partitions()).toContainEqual({ name });
    expect(await store.purge(week)).toMatchObject({ removed: 1 });
  });

  it("says what to do when it may not create tables, and does without partitions", async () => {
    const role = `${schema}_cleaner`;
    await pool.query(
      `CREATE ROLE ${role}; GRANT USAGE ON SCHEMA ${schema} TO ${role};
       GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO ${role}`,
    );
    const own = new pg.Pool({ connectionString: url, options: `-c role=${role}`, max: 2 });
    try {
      const restricted = postgresStore({ pool: own, schema });
      await expect(restricted.purge(week)).rejects.toThrow("partitions: false");
      await settle(...testMessages("m", 2));
      await pool.query(`UPDATE ${t.overflow} SET done_at = done_at - interval '8 days'`);
      expect(await restricted.purge({ ...week, partitions: false })).toMatchObject({ removed: 2, partitionsMade: 0 });
    } finally {
      await own.end();
      await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });

  it("deletes from old partitions what is old enough, all of it, where it may not drop them", async () => {
    const at = (days: number) => new Date(Date.now() - days * dayMs).toISOString();
    await pool.query(`CREATE TABLE ${schema}.older PARTITION OF ${t.done} FOR VALUES FROM ('${at(20)}') TO ('${at(9)}');
      CREATE TABLE ${schema}.old PARTITION OF ${t.done} FOR VALUES FROM ('${at(9)}') TO ('${at(5)}')`);
    const insert = (name: string, days: number, count: number) =>
      pool.query(`INSERT INTO ${t.done} (box, lane, position, id, source, type, content_type, topic, extensions, headers, data, attempts, done_at)
        SELECT 0, n % 64, n, '${name}-' || n, '/s', 't', 'a/b', 't', '{}', '{}', '', 1, '${at(days)}' FROM generate_series(1, ${count}) AS n`);
    await insert("older", 10, 2100);
    await insert("old", 8, 5);
    await insert("young", 6, 5);
    const seen: string[] = [];
    const archive = async (messages: readonly ArchivedMessage[]) =>
      void seen.push(...messages.map(({ message }) => message.id));
    expect(await store.purge({ ...week, partitions: false, archive })).toMatchObject({
      removed: 2105,
      partitionsDropped: 0,
    });
    expect(new Set(seen).size).toBe(2105);
    expect((await idsIn(t.done)).every((id) => id.startsWith("young"))).toBe(true);
    await pool.query(`DROP TABLE ${schema}.older, ${schema}.old`);
  });

  it("lets hours be the partitions of a short retention", async () => {
    expect(await store.purge({ retentionMs: 3_600_000 })).toMatchObject({ partitionsMade: 49 });
    await settle(...testMessages("m", 2));
    expect(await idsIn(t.overflow)).toEqual([]);
    // Daily partitions would overlap them, so the missing ones are created later.
    expect((await store.purge(week)).partitionsMade).toBeLessThan(8);
  });

  it("gives the archive large messages a few at a time", async () => {
    const large = new Uint8Array(1_000_000);
    for (let n = 0; n < 40; n += 10) {
      await settle(...Array.from({ length: 10 }, (_, at) => testMessage(`m${n + at}`, { data: large })));
    }
    const batches: string[][] = [];
    const archive = async (messages: readonly ArchivedMessage[]) => {
      batches.push(messages.map(({ message }) => message.id));
    };
    await pool.query("SELECT pg_sleep(0.01)");
    expect(await store.purge({ retentionMs: 0, partitions: false, archive })).toMatchObject({ removed: 40 });
    expect(batches.map(({ length }) => length)).toEqual([17, 17, 6]);
    expect(batches.flat()).toEqual(Array.from({ length: 40 }, (_, n) => `m${n}`));
  });

  it("keeps others away for as long as an archive takes", async () => {
    await settle(testMessage("m"));
    const [working, mayEnd] = [gate(), gate()];
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const first = store.purge({
      retentionMs: 0,
      partitions: false,
      async archive() {
        working.open();
        await mayEnd.opened;
      },
    });
    await working.opened;
    const until = async () =>
      (await pool.query(`SELECT cleaner_until AS until FROM ${t.boxes} WHERE name = 'outbox'`)).rows[0].until as Date;
    const before = await until();
    vi.advanceTimersByTime(30_000);
    vi.useRealTimers();
    await expect.poll(async () => (await until()).getTime() - before.getTime()).toBeGreaterThan(0);
    mayEnd.open();
    expect(await first).toMatchObject({ removed: 1 });
  });
});
