import { testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { inboxOf } from "postbox";
import { afterAll, beforeAll, expect, it } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";
import { postgresStore } from "./postgres-store.js";

/*
 * A role that may create objects in a schema of the owner's search path must not get its functions run with the owner's
 * rights. A function that fits the argument types better than the server's own is preferred, wherever it is.
 */

const traps: readonly (readonly [name: string, params: string, returns: string, operator?: string])[] = [
  ["hashtextextended", "text, integer", "bigint"],
  ["multiplied_integer", "numeric, integer", "numeric", "*"],
  ["multiplied_interval", "bigint, interval", "interval", "*"],
  ["multiplied_interval_4", "integer, interval", "interval", "*"],
  ["added", "timestamptz, double precision", "timestamptz", "+"],
  ["floor", "bigint", "numeric"],
  ["octet_length", "varchar", "integer"],
  ["chr", "bigint", "text"],
];

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const lure = `${schema}_lure`;

  beforeAll(async () => {
    await data.create();
    await pool.query(`CREATE SCHEMA ${lure}`);
    for (const [name, params, returns, operator] of traps) {
      await pool.query(`CREATE FUNCTION ${lure}.${name}(${params}) RETURNS ${returns} LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'trapped by ${name}'; END $$`);
      const [left, right] = params.split(", ");
      if (operator !== undefined) {
        await pool.query(
          `CREATE OPERATOR ${lure}.${operator} (LEFTARG = ${left}, RIGHTARG = ${right}, FUNCTION = ${lure}.${name})`,
        );
      }
    }
  });
  afterAll(async () => {
    await pool.query(`DROP SCHEMA ${lure} CASCADE`);
    await data.drop();
  });

  it("runs nothing of others, whatever the session looks into", async () => {
    // Ahead of pg_catalog, which is searched first only if the path does not name it.
    const options = `-c search_path=${lure},pg_catalog,public`;
    const own = new pg.Pool({ connectionString: url, max: 3, options });
    await expect(own.query("SELECT hashtextextended('x', 0)")).rejects.toThrow("trapped");
    const store = postgresStore({ pool: own, schema });
    await store.migrate();
    await store.transaction((tx) => store.append(tx, "outbox", [testMessage("1", { key: "k" }), testMessage("2")]));
    const box = store.box("outbox");
    await box.renew("relay-1", 60_000, "key");
    const lanes = await box.own("relay-1", 64);
    const every = lanes.map(({ lane }) => ({ lane, limit: 10 }));
    const [first, second] = (await box.read(every)).rows;
    if (first === undefined || second === undefined) throw new Error("both were appended");
    await box.settle(lanes, [{ row: first, to: "parked", attempts: 1, error: "refused" }], { keep: true });
    await box.settle(lanes, [{ row: second, to: "sent" }], { keep: true });
    await box.due(every);
    await box.promote(10);
    await box.release("relay-1");
    await store.inbox.keep([{ consumer: "c", message: testMessage("3"), id: "3" }], {
      retentionMs: 60_000,
      lockTimeoutMs: 100,
    });
    for (const name of ["outbox", inboxOf("c")]) {
      await store.admin.stats({ box: name });
      await store.admin.list({ box: name, status: "parked" });
      const { confirm } = await store.admin.dryRun("retry", { topic: "shop", box: name });
      await store.admin.retry({ topic: "shop", box: name }, { by: "ann", confirm });
      await store.admin.pause({ by: "ann", box: name });
      await store.admin.resume({ by: "ann", box: name });
      await store.purge({ box: name, retentionMs: 60_000 });
      expect((await store.health({ box: name })).problems.map(({ code }) => code)).not.toContain("unreachable");
    }
    await own.end();
  });
});
