import { testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { remember } from "@postbox/testkit/suites";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";
import { postgresStore } from "./postgres-store.js";

const statuses = {
  pending: ["pending"],
  waiting: ["wait", "hold"],
  scheduled: ["scheduled"],
  parked: ["parked"],
  done: ["done", "overflow"],
} as const;

describeOnEach("postgres", ({ url }) => {
  const data = postgresTestData({
    connect: () => new pg.Pool({ connectionString: url }),
    transactions: pgTransactions,
  });
  const { pool, schema } = data;
  const store = postgresStore({ pool, schema });
  const box = (name: string) => `${schema}.${name}`;

  beforeAll(async () => {
    await data.create();
    await pool.query(`CREATE TABLE ${box("outbox_done_2099")} PARTITION OF ${box("outbox_done")}
      FOR VALUES FROM ('2099-01-01') TO ('2100-01-01')`);
    const more = { extensions: { correlationid: "c", dataversion: "2" }, headers: { h: "x" }, subject: "s", key: "k" };
    await store.transaction(async (tx) => {
      await store.append(tx, "outbox", [testMessage("m", more), testMessage("alone")]);
      await store.append(tx, "inbox/other", [testMessage("m", more)]);
      await remember(store, tx, "billing", testMessage("m", more));
      await remember(store, tx, "shipping", testMessage("m", more));
    });
    const columns = `id, source, type, subject, time, content_type, data_schema, event_version, topic, key, extensions,
      headers, data, created_at`;
    for (const name of ["outbox", "inbox"]) {
      const from = `FROM ${box(name)}_pending WHERE id = 'm'`;
      await pool.query(`
        UPDATE ${box(name)}_pending SET attempts = 1, last_error = 'once', failures = '[1]';
        INSERT INTO ${box(name)}_wait (box, lane, position, ${columns}, attempts, last_error, hold_key)
          SELECT box, lane, position + 100, ${columns}, 2, 'twice', 'k' ${from}
          UNION ALL SELECT box, lane, position + 200, ${columns}, 3, 'thrice', 'for good' ${from}
          UNION ALL SELECT box, lane, position + 300, ${columns}, 4, 'lost', 'no hold' ${from};
        INSERT INTO ${box(name)}_hold SELECT box, lane, 'k', timestamptz '2099-01-02Z' ${from}
          UNION ALL SELECT box, lane, 'for good', 'infinity' ${from};
        INSERT INTO ${box(name)}_scheduled (due_at, box, lane, ${columns}) SELECT '2099-01-03Z', box, lane, ${columns} ${from};
        INSERT INTO ${box(name)}_parked (box, lane, position, ${columns}, attempts, reason, parked_at)
          SELECT box, lane, position + 400, ${columns}, 10, 'no', '2099-01-04Z' ${from};
        INSERT INTO ${box(name)}_overflow (box, lane, position, ${columns}, attempts, done_at)
          SELECT box, lane, position + 500, ${columns}, 1, '2099-01-05Z' ${from}`);
    }
    await pool.query(`INSERT INTO ${box("outbox_done")} SELECT * FROM ${box("outbox_overflow")}`);
  });
  afterAll(data.drop);

  const at = (day: number) => new Date(Date.UTC(2099, 0, day));

  it.each(["outbox", "inbox"])("shows everything in the %s, with its status", async (name) => {
    const { rows } = await pool.query(
      `SELECT * FROM ${box(name)}_messages WHERE id = 'm' AND status <> 'processed' ORDER BY updated_at, attempts`,
    );
    const shown = rows.map((row) => [row.status, row.attempts, row.last_error, row.due_at, row.published_at]);
    const done = ["done", 1, null, null, at(5)];
    expect(shown.sort()).toEqual(
      [
        ["pending", 1, "once", null, null],
        ["waiting", 2, "twice", at(2), null],
        ["waiting", 3, "thrice", null, null],
        ["waiting", 4, "lost", null, null],
        ["scheduled", 0, null, at(3), null],
        ["parked", 10, "no", null, null],
        done,
        ...(name === "outbox" ? [done] : []),
      ].sort(),
    );
    const message = testMessage("m");
    for (const row of rows) {
      expect(row).toMatchObject({
        type: message.type,
        topic: message.topic,
        source: message.source,
        key: "k",
        subject: "s",
        correlation_id: "c",
        event_version: "2",
        headers: { h: "x" },
        bytes: message.data.byteLength,
        data: Buffer.from(message.data),
        lane: expect.any(Number),
        position: expect.stringMatching(/^\d+$/),
        created_at: expect.any(Date),
        updated_at: expect.any(Date),
      });
    }
    const parked = rows.find(({ status }) => status === "parked");
    expect(parked.updated_at).toEqual(at(4));
    expect(rows.find(({ status }) => status === "pending").failures).toEqual([1]);
  });

  it("shows in the inbox what each consumer has processed, and nothing that it does not know", async () => {
    const { rows } = await pool.query(
      `SELECT * FROM ${box("inbox_messages")} WHERE status = 'processed' ORDER BY consumer`,
    );
    expect(rows.map(({ consumer }) => consumer)).toEqual(["billing", "shipping"]);
    expect(rows[0]).toMatchObject({
      id: "m",
      correlation_id: "c",
      published_at: expect.any(Date),
      attempts: null,
      key: null,
      data: null,
    });
    const { rowCount } = await pool.query(`SELECT FROM ${box("inbox_messages")} WHERE consumer = 'other'`);
    expect(rowCount).toBe(7);
  });

  describe("a condition on the status", () => {
    /** The tables that a plan reads, or would read if its condition allowed it. */
    function tablesIn(plan: Record<string, unknown>, name: string): string[] {
      const own = plan["Relation Name"];
      const ran = plan["Actual Loops"] === undefined || Number(plan["Actual Loops"]) > 0;
      const below = (plan.Plans as Record<string, unknown>[] | undefined) ?? [];
      const table = typeof own === "string" ? own.replace(`${name}_`, "").replace(/^done_.*/, "done") : undefined;
      // A small table of its own tells whose a row of an inbox is.
      const read = table !== undefined && table !== "box" && ran;
      return [...(read ? [table] : []), ...below.flatMap((one) => tablesIn(one, name))];
    }
    const explained = async (name: string, explain: string, client: pg.ClientBase | pg.Pool = pool) => {
      const { rows } = await client.query(explain);
      return [...new Set(tablesIn(rows[0]["QUERY PLAN"][0].Plan, name))].sort();
    };
    const cases = ["outbox", "inbox"].flatMap((name) =>
      Object.entries(statuses).map(([status, tables]) => [name, status, tables] as const),
    );

    it.each(cases)("in the %s, %s, leaves the other tables alone", async (name, status, tables) => {
      const expected = tables.filter((table) => name === "outbox" || table !== "done").sort();
      const view = `${box(name)}_messages`;
      const select = `SELECT * FROM ${view} WHERE status =`;
      expect(await explained(name, `EXPLAIN (FORMAT JSON) ${select} '${status}'`)).toEqual(expected);
      const count = `EXPLAIN (FORMAT JSON) SELECT count(*) FROM ${view} WHERE status IN ('${status}', 'x')`;
      // A query that only counts does not read when a hold is due.
      expect(await explained(name, count)).toEqual(expected.filter((table) => table !== "hold"));
      // Even if the plan is made before the status is known.
      const client = await pool.connect();
      try {
        await client.query(`SET plan_cache_mode = force_generic_plan; PREPARE by_status AS ${select} $1`);
        const plan = `EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE by_status('${status}')`;
        expect(await explained(name, plan, client)).toEqual(expected);
      } finally {
        await client.query("DEALLOCATE by_status; RESET plan_cache_mode");
        client.release();
      }
    });

    it("finds a done message by its id through the index, however many there are", async () => {
      const explain = `EXPLAIN SELECT * FROM ${box("outbox_messages")} WHERE status = 'done' AND id = 'm'`;
      const client = await pool.connect();
      try {
        await client.query("SET enable_seqscan = off");
        const { rows } = await client.query(explain);
        const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
        expect(plan.match(/Index Cond: \(id = 'm'::text\)/g)).toHaveLength(2);
      } finally {
        await client.query("RESET enable_seqscan");
        client.release();
      }
    });
  });
});
