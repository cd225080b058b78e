import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";

const checkViolation = "23514";

const good: Readonly<Record<string, string>> = {
  box: "0",
  lane: "1",
  position: "1000000",
  id: "'1'",
  source: "'/orders'",
  type: "'shop.OrderPlaced'",
  content_type: "'application/json'",
  topic: "'shop'",
  extensions: `'{"a": "b", "n": 1, "flag": true}'`,
  headers: `'{"h": "x"}'`,
  data: "''",
};

/** Values that a relay, health or administration could not handle. */
const bad: readonly (readonly [column: string, value: string])[] = [
  ["box", "-1"],
  ["lane", "-1"],
  ["lane", "64"],
  ["position", "9223372036854775807"],
  ["position", "9007199254740992"],
  ["position", "0"],
  ["position", "-1"],
  ...["id", "source", "type", "topic", "content_type"].map((column) => [column, "''"] as const),
  ...["id", "type", "topic", "content_type"].map((column) => [column, "repeat('x', 256)"] as const),
  ...["source", "subject", "data_schema", "key"].map((column) => [column, "repeat('x', 1025)"] as const),
  ["key", "''"],
  ["key", "chr(1) || 'an id'"],
  ["data", "convert_to(repeat('x', 128 * 1024 * 1024 + 1), 'UTF8')"],
  ["headers", "'null'"],
  ["headers", "'[]'"],
  ["headers", `'"text"'`],
  ["headers", `'{"a": 1}'`],
  ["headers", `'{"a": null}'`],
  ["headers", `'{"a": ["x"]}'`],
  ["extensions", "'null'"],
  ["extensions", `'[{"a": "b"}]'`],
  ["extensions", `'{"a": null}'`],
  ["extensions", `'{"a": {}}'`],
  ["extensions", `'{"a": ["x"]}'`],
  ["created_at", "'infinity'"],
  ["created_at", "'-infinity'"],
];

const badOfPending: typeof bad = [
  ["attempts", "-1"],
  ["crashes", "-1"],
  ["failures", "'{}'"],
  ["failures", "'null'"],
];

const badOfScheduled: typeof bad = [
  ["due_at", "'infinity'"],
  ["due_at", "'-infinity'"],
];

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 2 });
  const { pool, schema, create, drop } = postgresTestData({ connect, transactions: pgTransactions });
  beforeAll(async () => {
    await create();
  });
  afterAll(drop);

  async function insert(table: string, change: readonly (readonly [string, string])[]): Promise<unknown> {
    const row = { ...good, ...Object.fromEntries(change) };
    const columns = Object.keys(row).join(", ");
    const values = Object.values(row).join(", ");
    const text = `INSERT INTO ${schema}.${table} (${columns}) OVERRIDING SYSTEM VALUE VALUES (${values})`;
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      return await client.query(text);
    } finally {
      await client.query("ROLLBACK");
      client.release();
    }
  }

  describe.each([
    ["outbox_pending", [["box", "1"], ...badOfPending] as typeof bad, []],
    ["inbox_pending", [["box", "0"], ...badOfPending] as typeof bad, [["box", "1"]] as typeof bad],
    ["outbox_scheduled", [["box", "1"], ...badOfScheduled] as typeof bad, [["due_at", "now()"]] as typeof bad],
  ])("%s", (table, own, required) => {
    it("takes a message with all its columns", async () => {
      const more: typeof bad = [
        ["subject", "repeat('x', 1024)"],
        ["key", "repeat('x', 1024)"],
        ["id", "repeat('ä', 127) || 'x'"],
        ["headers", "'{}'"],
        ["extensions", "'{}'"],
        ["position", "9007199254740991"],
      ];
      await insert(table, [...required, ...more]);
    });

    it.each([...bad, ...own])("refuses %s %s", async (column, value) => {
      await expect(insert(table, [...required, [column, value]])).rejects.toMatchObject({
        code: checkViolation,
        column,
      });
    });
  });
});
