import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg, { type ClientBase } from "pg";
import { inboxOf } from "postbox";
import { type PostgresStore, pgTransactions, postgresStore } from "postbox/postgres";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import {
  forgedStatistics,
  forgeStatistics,
  hostileSettings,
  type WatchedPool,
  watchedPool,
} from "./forged-statistics.js";

/**
 * Rows of a box in each table. Reading a table or an index of it from end to end touches more pages than any statement
 * here may.
 */
const size = 60_000;
/** Of each other consumer in the same tables: still more than any statement may touch. */
const neighbours = 10_000;
const lanes = 64;
/** Parts of an inbox's memory, each of which is asked for an id. */
const slots = 20;

/** Filled evenly over the lanes; `n` is part of every id, and positions are `n`. */
async function fill(pool: pg.Pool, schema: string, name: string, count = size, idSuffix = ""): Promise<void> {
  const box = name === "outbox" ? name : "inbox";
  const columns = "id, source, type, content_type, topic, extensions, headers, data";
  const message = (name: string) =>
    `'${name}-' || n || '${idSuffix}', '/orders', 'shop.orders.v1.OrderPlaced', 'application/json', ` +
    `'shop.orders.v1', '{}', '{}', '\\x7b7d'`;
  const number = `(SELECT number FROM ${schema}.box WHERE name = '${name}')`;
  const lane = `${number}, n % ${lanes}`;
  const rows = `FROM generate_series(1, ${count}) AS n`;
  const t = (part: string) => `${schema}.${box}_${part}`;
  const parts = ["pending", "wait", "hold", "scheduled", "parked", "overflow"];
  const statements = `
    ${parts.map((part) => `ALTER TABLE ${t(part)} SET (autovacuum_enabled = false);`).join("")}
    ALTER TABLE ${t("pending")} DISABLE TRIGGER USER;
    INSERT INTO ${t("pending")} (box, lane, key, ${columns}) SELECT ${lane}, 'k' || n, ${message("pending")} ${rows};
    INSERT INTO ${t("wait")} (box, lane, position, attempts, key, hold_key, ${columns})
      SELECT ${lane}, n, 1, 'w' || n / 2, 'w' || n / 2, ${message("waiting")} ${rows};
    INSERT INTO ${t("hold")} (box, lane, key, due_at)
      SELECT box, lane, hold_key, now() + interval '1 hour' FROM ${t("wait")} WHERE box = ${number}
      GROUP BY box, lane, hold_key;
    INSERT INTO ${t("parked")} (box, lane, position, attempts, reason, key, holds, ${columns})
      SELECT ${lane}, ${size} + n, 3, 'refused', 'p' || n, n % 2 = 0, ${message("parked")} ${rows};
    INSERT INTO ${t("hold")} (box, lane, key, due_at) SELECT box, lane, key, 'infinity' FROM ${t("parked")}
      WHERE box = ${number} AND holds;
    INSERT INTO ${t("scheduled")} (box, lane, due_at, key, ${columns})
      SELECT ${lane}, now() + interval '1 second' * (n + 3600), 's' || n, ${message("scheduled")} ${rows};
    INSERT INTO ${t("overflow")} (box, lane, position, attempts, done_at, ${columns})
      SELECT ${lane}, 2 * ${size} + n, 1, now() - interval '1 day' + interval '1 ms' * n, ${message("done")} ${rows}`;
  // Each in a transaction of its own: one for all would keep the server from removing what other tests leave dead.
  for (const statement of statements.split(";\n")) await pool.query(statement);
}

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const { pool, schema, create, drop } = postgresTestData({ connect, transactions: pgTransactions });
  let hostile: WatchedPool | undefined;

  beforeAll(async () => {
    await create();
    const store = postgresStore({ pool, schema });
    // One consumer has as much as another one, in the same tables.
    const [earlier, billing, later] = ["earlier", "billing", "later"].map(inboxOf) as [string, string, string];
    for (const box of [earlier, billing, later]) await store.box(box).release("nobody");
    for (const box of ["outbox", billing]) await fill(pool, schema, box);
    for (const box of [earlier, later]) await fill(pool, schema, box, neighbours, ` of ${box}`);
    await pool.query(`
      CREATE TABLE ${schema}.old PARTITION OF ${schema}.outbox_done FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
      INSERT INTO ${schema}.outbox_done (box, lane, position, attempts, done_at, id, source, type, content_type, topic, extensions, headers, data)
        SELECT 0, n % 64, 3 * ${size} + n, 1, '2020-01-01 12:00', 'kept-' || n, '/s', 't', 'a/b', 't', '{}', '{}', '' FROM generate_series(1, ${size}) AS n;
      ALTER TABLE ${schema}.audit SET (autovacuum_enabled = false);
      INSERT INTO ${schema}.audit (box, action, actor, count, ids, confirm, last_position)
        SELECT CASE WHEN n % 1000 = 0 THEN 'outbox' ELSE 'inbox/other' END, 'replay', 'ann', 0, '{}', 'token ' || n, 1
        FROM generate_series(1, ${size}) AS n;
      INSERT INTO ${schema}.inbox_message (consumer, id, type, source, topic, since, processed_at)
        SELECT 'billing', 'done-' || n, 't', '/s', 't', now(), now() FROM generate_series(1, ${size}) AS n`);
    await pool.query(`ALTER TABLE ${schema}.inbox_message SET (autovacuum_enabled = false)`);
    for (const partition of (
      await pool.query(
        `SELECT oid::regclass AS name FROM pg_class WHERE relispartition AND relkind = 'r' AND relnamespace = '${schema}'::regnamespace`,
      )
    ).rows) {
      await pool.query(`ALTER TABLE ${partition.name} SET (autovacuum_enabled = false)`);
    }
  });
  afterEach(async () => hostile?.pool.end());
  afterAll(drop);

  /** Each time other messages: what was changed once is elsewhere. */
  let next = 1000;
  const taken = (count: number, name: string) => Array.from({ length: count }, () => `${name}-${next++}`);
  const by = { by: "ann" };

  /** What operators do, with how many rows of the tables it is about. */
  const operations: readonly (readonly [
    name: string,
    rows: number,
    work: (store: PostgresStore<ClientBase>, box: string) => Promise<unknown>,
  ])[] = [
    ...(["pending", "waiting", "scheduled", "parked"] as const).flatMap(
      (status) =>
        [
          [`lists a page of what is ${status}`, 6 * lanes, (store, box) => store.admin.list({ box, status, limit: 5 })],
          [
            `discards what is ${status}`,
            10,
            async (store, box) => {
              const { count } = await store.admin.discard({ box, status, ids: taken(10, status) }, by);
              expect(count).toBe(10);
            },
          ],
        ] as const satisfies typeof operations,
    ),
    [
      "lists a page of what is done",
      6,
      (store, box) => (box === "outbox" ? store.admin.list({ box, status: "done", limit: 5 }) : Promise.resolve()),
    ],
    ["gets a message", 5, (store, box) => store.admin.get("parked-77", { box })],
    [
      "lists by ids",
      slots * 20,
      (store, box) =>
        store.admin.list({
          box,
          ids: taken(20, "done"),
          status: ["pending", "waiting", "scheduled", "parked", "done"],
        }),
    ],
    ...(["pending", "waiting", "parked"] as const).map(
      (status) =>
        [
          `retries what is ${status}`,
          10,
          async (store, box) => {
            const { count } = await store.admin.retry({ box, status, ids: taken(10, status) }, by);
            expect(count).toBe(10);
          },
        ] as const satisfies (typeof operations)[number],
    ),
    [
      "replays",
      10,
      async (store, box) => {
        if (box !== "outbox") return;
        expect(
          await store.admin.replay({ ids: taken(10, "done").map((id) => `done-${size - Number(id.slice(5))}`) }, by),
        ).toEqual({ count: 10 });
      },
    ],
    ["counts before a retry", 10, (store, box) => store.admin.dryRun("retry", { box, ids: taken(10, "parked") })],
    // It is held in another lane, and so is looked for in vain.
    ["releases a key", 1, (store, box) => store.admin.release("p2", { ...by, box })],
    [
      "pauses and resumes",
      1,
      async (store, box) => {
        await store.admin.pause({ ...by, box });
        await store.admin.resume({ ...by, box });
      },
    ],
    ["reads the audit", 5, (store, box) => store.admin.audit({ box, limit: 5 })],
    [
      "looks at the health",
      // And a page for each of the 1,001 parked messages that it counts, if the table was not vacuumed since they came.
      5 * lanes + 84,
      async (store, box) => {
        const { problems } = await store.health({ box, timeoutMs: 30_000 });
        expect(problems.map(({ code }) => code)).not.toContain("unreadable");
      },
    ],
    ...(
      [
        ["the overflow", 1],
        ["a partition", 2 * 24 * 3_600_000],
      ] as const
    ).map(
      ([what, retentionMs]) =>
        [
          `cleans a batch of ${what}`,
          1000,
          async (store, box) => {
            if (box !== "outbox") return;
            // The signal ends it after the first batch.
            const ending = new AbortController();
            const archive = async () => ending.abort();
            const { removed } = await store.purge({
              box,
              retentionMs,
              partitions: false,
              archive,
              signal: ending.signal,
            });
            expect(removed).toBe(1000);
          },
        ] as const satisfies (typeof operations)[number],
    ),
  ];

  /** More pages than this are a scan. */
  const most = (rows: number) => 400 + 12 * rows;

  async function tooMany(watched: WatchedPool): Promise<string[]> {
    const store = postgresStore({ pool: watched.pool, schema });
    const found: string[] = [];
    for (const box of ["outbox", inboxOf("billing")]) {
      for (const [name, rows, work] of operations) {
        for (const { text, buffers, scans } of await watched.ranBy(() => work(store, box))) {
          if (buffers > most(rows)) {
            const worst = [...scans].sort((a, b) => b.buffers - a.buffers)[0];
            found.push(
              `${name} in ${box}: ${buffers} pages, ${JSON.stringify(worst)}: ` +
                `${text.replace(/\s+/g, " ").slice(0, 300)}`,
            );
          }
        }
      }
    }
    return found;
  }

  describe.each(forgedStatistics)("with $counts and $columns", (forged) => {
    it("every statement walks an index by its key", async () => {
      await forgeStatistics(pool, schema, forged);
      hostile = watchedPool(url);
      expect(await tooMany(hostile)).toEqual([]);
    });
  });

  describe.each([
    ...Object.entries(hostileSettings),
    ["no index scans", { enable_indexscan: "off", enable_indexonlyscan: "off", enable_bitmapscan: "off" }] as const,
  ])("with %s", (_, settings) => {
    it("every statement walks an index by its key", async () => {
      await forgeStatistics(pool, schema, { counts: "no rows in many pages", columns: "no statistics" });
      hostile = watchedPool(url, settings);
      expect(await tooMany(hostile)).toEqual([]);
    });
  });
});
