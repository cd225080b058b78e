import { recordingSender, telemetryLog, testMessage } from "@postbox/testkit";
import { disposable } from "@postbox/testkit/servers";
import pg from "pg";
import { createRelay } from "postbox";
import { afterAll, beforeAll, expect, it } from "vitest";
import { WriterRanges } from "../writer-ranges.js";
import { postgresStore } from "./index.js";

/* On its own server: a concurrent transaction that ends in between would hide the effect. */

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

it("lists an open transaction that has a higher number than any that has ended", async () => {
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
    const { rows, writers } = await box.read(every);
    expect(rows.map(({ message }) => message.id)).toEqual(["later"]);
    const number = Number(own[0].number);
    expect(writers).toEqual(WriterRanges.one(number));
    await first.query("COMMIT");
    const after = await box.read(every);
    expect(after.rows).toHaveLength(2);
    expect(after.writers?.none).toBe(true);
  } finally {
    first.release();
    second.release();
  }
});

it.each(["key", "total"] as const)("bears a bulk load with a subtransaction per row (order %s)", async (order) => {
  const schema = `bulk_${order}`;
  const store = postgresStore({ pool, schema });
  await store.migrate();
  await pool.query(`CREATE TABLE ${schema}.loaded (n integer)`);
  const append = (id: string) => store.transaction((tx) => store.append(tx, "outbox", [testMessage(id)]));
  const sender = recordingSender();
  const log = telemetryLog();
  const relay = createRelay(store, sender, { order, pollIntervalMs: 20, telemetry: log.telemetry });
  relay.start();
  const client = await pool.connect();
  try {
    await append("before");
    await sender.until(1);
    await client.query("BEGIN");
    await client.query(`DO $$ BEGIN
      FOR i IN 1..150000 LOOP
        BEGIN INSERT INTO ${schema}.loaded VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END;
      END LOOP; END $$`);
    await append("meanwhile");
    if (order === "key") await sender.until(2);
    await client.query("COMMIT");
    await append("after");
    await sender.until(3);
  } finally {
    client.release();
    await relay.stop();
  }
  expect(sender.ids()).toEqual(["before", "meanwhile", "after"]);
  expect(log.of("relay.failed")).toEqual([]);
});
