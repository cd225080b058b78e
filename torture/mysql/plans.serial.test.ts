import { testMessage, testMessages } from "@postbox/testkit";
import { type DisposableServer, disposable } from "@postbox/testkit/servers";
import { createPool, type Pool } from "mysql2/promise";
import { inboxOf } from "postbox";
import { type Mysql2Transaction, type MysqlStore, mysqlStore } from "postbox/mysql";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isMariadbInstalled } from "../../packages/testkit/src/servers/recipes/mariadb.js";

const consumer = "billing";
const remembering = { retentionMs: 3_600_000, lockTimeoutMs: 1_000 };

/** Small tables that are read as a whole: one row for each box, or for each connection that appends. */
const small = /^(?:<|postbox_(?:writer|box|version|member)$|b$)/;
/** Statements that walk over a whole box on purpose: an operator counts. */
const counting = /COUNT\(|GROUP BY|ROW_NUMBER/;
/** It reads nothing, though EXPLAIN shows a table. */
const inserting = /^INSERT[^;]*?\)\s+VALUES \(/;

describe.skipIf(!isMariadbInstalled())("the plans of the statements on MariaDB", () => {
  let server: DisposableServer;
  let pool: Pool;
  let store: MysqlStore<Mysql2Transaction>;
  beforeAll(async () => {
    server = await disposable("mariadb");
    const admin = createPool(server.url);
    await admin.query("CREATE DATABASE shop");
    await admin.end();
    pool = createPool({ uri: `${server.url}/shop`, supportBigNumbers: true });
    store = mysqlStore({ pool });
    await store.migrate();
    await pool.query("SET GLOBAL log_output = 'TABLE'");
    await pool.query("SET GLOBAL general_log = ON");
  });
  afterAll(async () => {
    await pool?.end();
    await server?.stop();
  });

  it("every statement of a relay and of a consumer uses its index, on empty tables and on full ones", async () => {
    const empty = await everyStatement();
    expect(await badPlans(empty)).toEqual([]);
    const many = testMessages("many", 4_000, { key: "k" });
    await store.transaction((tx) => store.append(tx, "outbox", many));
    for (let n = 0; n < 20; n++) {
      const some = testMessages(`some-${n}`, 100);
      await store.transaction((tx) => store.append(tx, "outbox", some));
    }
    // As they are right after the tables were created, and as they are now.
    expect(await badPlans(empty)).toEqual([]);
    await pool.query("ANALYZE TABLE postbox_pending, postbox_waiting, postbox_hold, postbox_done, postbox_handled");
    const full = await everyStatement();
    expect(full.length).toBeGreaterThan(30);
    expect(await badPlans(full)).toEqual([]);
  }, 120_000);

  /** Runs every verb, and returns what it sent. */
  async function everyStatement(): Promise<readonly string[]> {
    await pool.query("TRUNCATE mysql.general_log");
    const box = store.box("outbox");
    const deliverAt = new Date(Date.now() - 1_000);
    await store.transaction(async (tx) => {
      await store.append(tx, "outbox", testMessages("m", 6, { key: "k" }), { strictKeyOrder: true });
      await store.append(tx, "outbox", [testMessage("s", { deliverAt, scheduleKey: "s" })]);
      await store.append(tx, "outbox", [testMessage("t", { deliverAt, scheduleKey: "t" })]);
      await store.cancel(tx, "outbox", testMessage("t").type, "t");
      await store.tick(tx, "nightly");
    });
    await box.renew("me", 60_000, "key");
    await box.own("me", 64);
    const { lanes } = await box.renew("me", 60_000, "key");
    await box.promote(10);
    const every = lanes.map(({ lane }) => ({ lane, limit: 10 }));
    const { rows } = await box.read(every);
    await box.late(
      every.map(({ lane }) => ({ lane, after: 0, upTo: 1_000_000, known: [1, 2] })),
      10,
    );
    await box.suspect(lanes, rows);
    const [one, two, three, ...rest] = rows;
    if (one === undefined || two === undefined || three === undefined) throw new Error("too few rows");
    const wait = { to: "wait", attempts: 1, retryInMs: 0, error: "no" } as const;
    await box.settle(lanes, [
      { row: one, ...wait },
      { row: two, to: "parked", attempts: 1, error: "never" },
    ]);
    await box.settle(lanes, [{ row: three, to: "sent" }], { keep: true });
    await box.settle(
      lanes,
      rest.slice(0, 2).map((row) => ({ row, to: "sent" })),
    );
    const due = await box.due(every, { except: ["other"] });
    await box.settle(
      lanes,
      due.map((row) => ({ row, ...wait })),
    );
    const arrival = (id: string) => ({ consumer, id, message: testMessage(id, { time: new Date() }) });
    await store.inbox.keep([arrival("a"), arrival("b")], remembering);
    await store.inbox.setAside(arrival("c"), wait, remembering);
    await store.transaction((tx) => store.inbox.remember(tx, arrival("d"), remembering));
    await store.admin.list({ ids: ["m-0"] });
    await store.admin.list({ limit: 2 });
    await store.admin.retry({ ids: [two.message.id] }, { by: "ann" });
    await store.health();
    await store.purge({ retentionMs: 0 });
    await store.purge({ retentionMs: 0, box: inboxOf(consumer) });
    await box.release("me");
    const [logged] = await pool.query(
      "SELECT DISTINCT CONVERT(argument USING utf8mb4) AS text FROM mysql.general_log WHERE command_type = 'Query'",
    );
    const texts = (logged as { text: string }[]).map(({ text }) => text);
    return texts.filter((text) => /postbox_/.test(text) && !text.includes(";\n") && !counting.test(text));
  }

  /** Statements that walk over a table or over a whole index. */
  async function badPlans(statements: readonly string[]): Promise<readonly string[]> {
    const bad: string[] = [];
    for (const statement of statements) {
      if (!/^\(?\s*(?:SELECT|INSERT|UPDATE|DELETE)/.test(statement) || inserting.test(statement)) continue;
      const [plan] = await pool.query(`EXPLAIN ${statement}`);
      for (const { table, type } of plan as { table: string | null; type: string | null }[]) {
        if (table === null || small.test(table)) continue;
        if (type === "ALL" || type === "index") bad.push(`${table} ${type}: ${statement.slice(0, 400)}`);
      }
    }
    return bad;
  }
});
