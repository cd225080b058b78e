import { randomBytes } from "node:crypto";
import { testMessage } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { remember } from "@postbox/testkit/suites";
import pg from "pg";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { migrationSql, postgresStore } from "./index.js";
import { oldServerState, schemaVersion, steps } from "./migrations.js";
import { schemaError } from "./schema-check.js";

describe("migrationSql", () => {
  it("refuses a schema that is no plain name", () => {
    for (const schema of ["", "a b", 'a"; drop schema public; --', "1a", "a.b", "x".repeat(64), 7]) {
      expect(() => migrationSql({ schema } as { schema: string })).toThrow("option-invalid");
    }
  });
});

describe("a step of the schema", () => {
  /**
   * Databases have run the released steps and never run them again. If this fails for an unreleased step, write the new
   * statements with `npx vitest run <this file> --update`. If the step was released, undo the change and add a step
   * that makes it.
   */
  const advice =
    "a released step never changes: undo this, and add a step; for one that was never released, use --update";

  it.each(steps.map((step, index) => [index + 1, step] as const))("%i is what was released", async (version, step) => {
    const file = `../../../fixtures/migrations/step-${version}.sql`;
    await expect(step("postbox"), advice).toMatchFileSnapshot(file);
  });
});

describeOnEach("postgres", ({ url }) => {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  const schemas: string[] = [];
  const storeOnNothing = () => {
    const schema = `Test_${randomBytes(6).toString("hex")}`;
    schemas.push(schema);
    return postgresStore({ pool, schema });
  };
  const appendOne = (store: ReturnType<typeof storeOnNothing>) =>
    store.transaction((tx) => store.append(tx, "outbox", [testMessage("m1")]));

  afterEach(async () => {
    for (const schema of schemas.splice(0)) await pool.query(`DROP SCHEMA IF EXISTS "${schema}" CASCADE`);
  });
  afterAll(() => pool.end());

  it("makes one schema when ten start at once, in a database that has none", async () => {
    const { schema } = storeOnNothing();
    await Promise.all(Array.from({ length: 10 }, () => postgresStore({ pool, schema }).migrate()));
    const { rows } = await pool.query(`SELECT version FROM "${schema}".migration ORDER BY version`);
    expect(rows.map(({ version }) => version)).toEqual(Array.from({ length: schemaVersion }, (_, index) => index + 1));
    expect((await pool.query(`SELECT count(*)::int AS lanes FROM "${schema}".outbox_lane`)).rows[0].lanes).toBe(64);
  });

  it("refuses a server that is too old, before it makes anything", async () => {
    const { schema } = storeOnNothing();
    // No such server is available, so the script is changed to treat every server as too old.
    const script = migrationSql({ schema }).replace("< 140000", "< 990000");
    const client = await pool.connect();
    try {
      await expect(client.query(script)).rejects.toMatchObject({
        code: oldServerState,
        message: expect.stringContaining("postbox needs 14 or later"),
      });
    } finally {
      await client.query("ROLLBACK");
      client.release();
    }
    expect((await pool.query(`SELECT to_regnamespace('"${schema}"') AS made`)).rows).toEqual([{ made: null }]);
    const raised = Object.assign(new Error("this server is PostgreSQL 13.9"), {
      code: oldServerState,
      hint: "Upgrade the server.",
    });
    expect(schemaError(raised, schema)).toMatchObject({
      code: "server-unsupported",
      message: expect.stringContaining("PostgreSQL 13.9. Upgrade the server."),
    });
  });

  it("refuses a database that does not take every text", async () => {
    const database = `postbox_${randomBytes(6).toString("hex")}`;
    await pool.query(`CREATE DATABASE ${database} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`);
    const there = new URL(url);
    there.pathname = `/${database}`;
    const own = new pg.Pool({ connectionString: there.href });
    try {
      await expect(postgresStore({ pool: own }).migrate()).rejects.toMatchObject({
        code: "server-unsupported",
        message: expect.stringMatching(/encoding LATIN1.*Create the database with ENCODING 'UTF8'/),
      });
    } finally {
      await own.end();
      await pool.query(`DROP DATABASE ${database}`);
    }
  });

  it("is printable: the script alone makes a schema that works, and does nothing the second time", async () => {
    const store = storeOnNothing();
    await pool.query(migrationSql({ schema: store.schema }));
    await appendOne(store);
    await pool.query(migrationSql({ schema: store.schema }));
    await store.migrate();
    expect((await pool.query(`SELECT id FROM "${store.schema}".outbox_pending`)).rows).toEqual([{ id: "m1" }]);
  });

  it("can be left to a tool with a transaction of its own, which it leaves as it was", async () => {
    const store = storeOnNothing();
    const { schema } = store;
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      await client.query("SET LOCAL search_path = public; SET LOCAL lock_timeout = '7s'");
      await client.query(migrationSql({ schema, transaction: false }));
      const { rows } = await client.query(
        "SELECT current_setting('search_path') AS path, current_setting('lock_timeout') AS timeout",
      );
      expect(rows).toEqual([{ path: "public", timeout: "7s" }]);
      await client.query("ROLLBACK");
      await expect(appendOne(store)).rejects.toMatchObject({ code: "schema-missing" });
      await client.query("BEGIN");
      await client.query(migrationSql({ schema, transaction: false }));
      await client.query("COMMIT");
      await appendOne(store);
    } finally {
      client.release();
    }
  });

  it("leaves nothing behind when it fails halfway", async () => {
    const store = storeOnNothing();
    await pool.query(`CREATE SCHEMA "${store.schema}"; CREATE TABLE "${store.schema}".inbox_message (taken int)`);
    await expect(store.migrate()).rejects.toMatchObject({ code: "42P07" });
    const { rows } = await pool.query("SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace", [
      `"${store.schema}"`,
    ]);
    expect(rows).toEqual([{ relname: "inbox_message" }]);
  });

  it("refuses a newer schema, and so do all other calls", async () => {
    const store = storeOnNothing();
    await store.migrate();
    await pool.query(`INSERT INTO "${store.schema}".migration VALUES ($1)`, [schemaVersion + 1]);
    const newer = { code: "schema-newer" };
    await expect(store.migrate()).rejects.toMatchObject(newer);
    const client = await pool.connect();
    await expect(client.query(migrationSql({ schema: store.schema }))).rejects.toThrow("this script knows");
    await client.query("ROLLBACK");
    client.release();
    await expect(appendOne(store)).rejects.toMatchObject(newer);
    await expect(store.box("outbox").renew("relay-1", 1000, "key")).rejects.toMatchObject(newer);
  });

  it("says that the schema is outdated", async () => {
    const store = storeOnNothing();
    await store.migrate();
    await pool.query(`DELETE FROM "${store.schema}".migration`);
    await expect(appendOne(store)).rejects.toMatchObject({ code: "schema-outdated" });
  });

  it("says that the schema is missing, and what to do", async () => {
    const store = storeOnNothing();
    await expect(appendOne(store)).rejects.toThrow(/^\[schema-missing\] .* call store\.migrate\(\)/);
    await expect(store.box("outbox").own("relay-1", 64)).rejects.toMatchObject({ code: "schema-missing" });
  });

  it("leaves the caller's transaction usable when the schema is missing, and works once it is there", async () => {
    const store = storeOnNothing();
    const answer = await store.transaction(async (tx) => {
      await expect(store.append(tx, "outbox", [testMessage("m1")])).rejects.toThrow("schema-missing");
      await expect(remember(store, tx, "billing", testMessage("m1"))).rejects.toThrow("schema-missing");
      return (await tx.query("SELECT 42 AS answer")).rows[0].answer;
    });
    expect(answer).toBe(42);
    await store.migrate();
    await appendOne(store);
  });

  it("says so, too, when the schema is dropped later", async () => {
    const store = storeOnNothing();
    await store.migrate();
    await appendOne(store);
    await pool.query(`DROP SCHEMA "${store.schema}" CASCADE`);
    const missing = { code: "schema-missing", cause: expect.anything() };
    await expect(appendOne(store)).rejects.toMatchObject(missing);
    await expect(store.box("outbox").read([{ lane: 0, limit: 1 }])).rejects.toMatchObject(missing);
  });

  it("needs no right to create anything once it is up to date", async () => {
    const { schema } = storeOnNothing();
    await postgresStore({ pool, schema }).migrate();
    const role = schema.toLowerCase();
    await pool.query(`CREATE ROLE ${role} LOGIN; GRANT USAGE ON SCHEMA "${schema}" TO ${role};
      GRANT SELECT ON "${schema}".migration TO ${role}`);
    const client = await pool.connect();
    try {
      await client.query(`SET ROLE ${role}`);
      await client.query(migrationSql({ schema }));
    } finally {
      await client.query("ROLLBACK; RESET ROLE");
      client.release();
      await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });
});
