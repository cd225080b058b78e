import { disposable, testMessage } from "@postbox/testkit";
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { postgresStore } from "./index.js";

/*
 * On a server of its own: anybody else's transaction that ends in between hides what this is about.
 */

let server: Awaited<ReturnType<typeof disposable>>;
let pool: pg.Pool;
beforeAll(async () => {
  server = await disposable("postgres");
  pool = new pg.Pool({ connectionString: server.url });
});
afterAll(async () => {
  await pool.end();
  await server.stop();
});

it("tells of an open transaction that has a higher number than any that has ended", async () => {
  const store = postgresStore({ pool });
  await store.migrate();
  const box = store.box("outbox");
  const [first, second] = [await pool.connect(), await pool.connect()];
  const append = (client: pg.ClientBase, id: string) => store.append(client, "outbox", [testMessage(id, { key: id })]);
  try {
    await second.query("BEGIN");
    await second.query("SELECT pg_current_xact_id()");
    await first.query("BEGIN");
    await append(first, "early");
    const { rows: own } = await first.query("SELECT pg_current_xact_id()::text AS number");
    await append(second, "later");
    await second.query("COMMIT");
    const every = Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 10 }));
    const { rows, open } = await box.read(every);
    expect(rows.map(({ message }) => message.id)).toEqual(["later"]);
    expect([...open]).toEqual([Number(own[0].number)]);
    await first.query("COMMIT");
    const after = await box.read(every);
    expect(after.rows).toHaveLength(2);
    expect([...after.open]).toEqual([]);
  } finally {
    first.release();
    second.release();
  }
});
