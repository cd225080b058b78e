import { randomBytes } from "node:crypto";
import { testMessage } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { remember } from "@postbox/testkit/suites";
import pg from "pg";
import { postgresStore } from "postbox/postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pageText, statements } from "./snippets.js";

const guide = "docs/guides/monitoring.md";
const sql = statements(guide);

describe("the guide to monitoring", () => {
  it("has a statement for every one that its tables name, and names every one", () => {
    const rows = pageText(guide)
      .split("\n")
      .filter((line) => line.startsWith("| "));
    const named = rows.flatMap((row) => [...(row.split(" | ")[1] ?? "").matchAll(/`(\w+)`/g)].map(([, name]) => name));
    for (const name of Object.keys(sql)) expect(named).toContain(name);
  });
});

/** What each statement must find in the box below. */
const expected: Readonly<Record<string, unknown>> = {
  unsent: [{ count: "6" }],
  pending: [{ count: "3" }],
  oldest: [{ seconds: expect.closeTo(600, -2) }],
  waiting: [{ count: "3" }],
  parked: [{ count: "3" }],
  failed: [
    { id: "parked-3", type: "t.T", key: null, attempts: 1, last_error: "rejected", updated_at: expect.any(Date) },
    { id: "parked-2", attempts: 10, last_error: "down" },
    { id: "parked-1", attempts: 10, last_error: "down" },
  ],
  poison: [{ id: "wait-1", type: "t.T", key: "k", attempts: 7, last_error: "no route" }],
  dead_letters: [
    { topic: "t", last_error: "down", count: "2", since: expect.any(Date) },
    { topic: "t", last_error: "rejected", count: "1" },
  ],
  throughput: [{ per_second: 4 / 300 }],
  // Average and p95 of 1, 1, 1 and 10 seconds. The fifth message was sent before the window.
  latency: [{ average: expect.closeTo(3.25, 3), p95: expect.closeTo(8.65, 3) }],
  retried: [{ share: 0.25 }],
  processed: [
    { consumer: "billing", count: "2" },
    { consumer: "shipping", count: "1" },
  ],
  inbox_failed: [
    { id: "in-parked", status: "parked", type: "t.T", attempts: 10, last_error: "bug" },
    { id: "in-wait", status: "waiting", type: "t.T", attempts: 2, last_error: "later" },
  ],
  stuck: [{ id: "in-old", status: "pending", type: "t.T", attempts: 0, last_error: null }],
  held: [{ count: "2", for_good: "1" }],
  overdue: [{ count: "1", longest: expect.anything() }],
  unowned: [{ count: "62" }],
  sizes: expect.arrayContaining([
    { name: "outbox_pending", bytes: expect.stringMatching(/^\d+$/), rows_about: expect.stringMatching(/^\d+$/) },
  ]),
};

describeOnEach("postgres", (server) => {
  const admin = new pg.Pool({ connectionString: server.url, max: 1 });
  const name = `monitoring_${randomBytes(6).toString("hex")}`;
  let pool: pg.Pool;

  const columns = "id, source, type, content_type, topic, key, extensions, headers, data, created_at";
  const ago = (seconds: number) => `now() - interval '${seconds} seconds'`;
  const message = (id: string, seconds: number, key?: string) =>
    `'${id}', '/s', 't.T', 'application/json', 't', ${key === undefined ? "NULL" : `'${key}'`}, '{}', '{}', '1', ` +
    `${ago(seconds)}`;
  const insert = (table: string, more: string, rows: readonly string[]) => {
    const box = table.startsWith("outbox") ? 0 : 1;
    const values = rows.map((row) => `(${box}, ${row})`).join(", ");
    return `INSERT INTO postbox.${table} (box, lane, ${more}, ${columns}) VALUES ${values};`;
  };

  beforeAll(async () => {
    await admin.query(`CREATE DATABASE ${name}`);
    const url = new URL(server.url);
    url.pathname = name;
    pool = new pg.Pool({ connectionString: url.href, max: 2 });
    const store = postgresStore({ pool });
    await store.migrate();
    await store.transaction(async (tx) => {
      await tx.query("SELECT postbox.publish('t.T', '1'), postbox.publish('t.T', '2')");
      await tx.query("SELECT postbox.publish('t.T', '3', deliver_at => clock_timestamp() + interval '1 day')");
      for (const id of ["p1", "p2"]) await remember(store, tx, "billing", testMessage(id));
      for (const id of ["p1", "p3"]) await remember(store, tx, "shipping", testMessage(id));
    });
    const sent = (position: number, after: number, since: number, attempts: number) =>
      `0, ${position}, ${attempts}, ${ago(since)}, ${message(`done-${position}`, since).replace(/, [^,]*$/, "")}, ` +
      `${ago(since + after)}`;
    await pool.query(
      [
        insert("outbox_pending", "attempts", [`0, 0, ${message("old", 600)}`]),
        insert("outbox_wait", "position, attempts, last_error, hold_key", [
          `0, 101, 7, 'no route', 'k', ${message("wait-1", 60, "k")}`,
          `0, 102, 0, NULL, 'k', ${message("wait-2", 60, "k")}`,
          `0, 103, 1, 'slow', 'j', ${message("wait-3", 60, "j")}`,
        ]),
        "INSERT INTO postbox.outbox_hold VALUES (0, 0, 'k', clock_timestamp() + interval '1 hour');",
        "INSERT INTO postbox.outbox_hold VALUES (0, 0, 'j', 'infinity');",
        insert("outbox_parked", "position, attempts, reason, parked_at", [
          `0, 201, 10, 'down', ${ago(30)}, ${message("parked-1", 60)}`,
          `0, 202, 10, 'down', ${ago(20)}, ${message("parked-2", 60)}`,
          `0, 203, 1, 'rejected', ${ago(10)}, ${message("parked-3", 60)}`,
        ]),
        insert("outbox_scheduled", "due_at", [`0, ${ago(60)}, ${message("overdue", 600)}`]),
        insert("outbox_overflow", "position, attempts, done_at", [
          sent(301, 1, 10, 1),
          sent(302, 1, 20, 1),
          sent(303, 1, 30, 1),
          sent(304, 10, 40, 2),
          sent(305, 100, 600, 5),
        ]),
        insert("inbox_pending", "attempts", [`0, 0, ${message("in-old", 3600)}`, `0, 0, ${message("in-new", 1)}`]),
        insert("inbox_wait", "position, attempts, last_error, hold_key", [
          `0, 101, 2, 'later', 'k', ${message("in-wait", 60, "k")}`,
          `0, 102, 0, NULL, 'k', ${message("in-behind", 60, "k")}`,
        ]),
        insert("inbox_parked", "position, attempts, reason", [`0, 201, 10, 'bug', ${message("in-parked", 3600)}`]),
        "UPDATE postbox.inbox_message SET processed_at = processed_at - interval '1 day' WHERE id = 'p3';",
        `INSERT INTO postbox.outbox_member VALUES (0, 'lives', 'key', 1, 15000, clock_timestamp() + interval '1 hour'),
          (0, 'dead', 'key', 1, 15000, clock_timestamp() - interval '1 hour');
        UPDATE postbox.outbox_lane SET owner = CASE WHEN lane < 2 THEN 'lives' ELSE 'dead' END WHERE lane < 10;`,
      ].join("\n"),
    );
  });
  afterAll(async () => {
    await pool?.end();
    await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    await admin.end();
  });

  it.each(Object.entries(sql))("%s finds what is there", async (statement, text) => {
    expect(Object.keys(expected)).toContain(statement);
    const { rows } = await pool.query(text);
    const found = expected[statement];
    if (Array.isArray(found)) {
      expect(rows).toHaveLength(found.length);
      expect(rows).toMatchObject(found);
    } else expect(rows).toEqual(found);
  });
});
