import { execFile } from "node:child_process";
import { rename, writeFile } from "node:fs/promises";
import { promisify } from "node:util";
import { gate, recordingSender, telemetryLog, testMessages } from "@postbox/testkit";
import { disposable } from "@postbox/testkit/servers";
import pg from "pg";
import { createRelay } from "postbox";
import { postgresStore } from "postbox/postgres";
import { afterAll, beforeAll, expect, it } from "vitest";

/*
 * An asynchronous failover: the standby that is promoted has not got the last commits. What comes next gets the
 * positions that the lost messages had.
 */

let server: Awaited<ReturnType<typeof disposable>>;
let pool: pg.Pool;
beforeAll(async () => {
  server = await disposable("postgres");
  pool = new pg.Pool({ connectionString: server.url });
  pool.on("error", () => {});
});
afterAll(async () => {
  await pool.end();
  await server.stop();
});

const run = promisify(execFile);

it.each(["key", "total"] as const)("loses nothing that the new primary has (order %s)", async (order) => {
  const schema = `failover_${order}`;
  const store = postgresStore({ pool, schema });
  await store.migrate();
  const append = (name: string, count: number) =>
    store.transaction((tx) => store.append(tx, "outbox", testMessages(name, count, { key: name })));
  const confirming = gate();
  const sender = recordingSender({
    keepsOrder: false,
    before: (batch) => (batch[0]?.id.startsWith("lost") ? confirming.opened : undefined),
  });
  const log = telemetryLog();
  const options = { order, leaseMs: 30_000, publishTimeoutMs: 9_000, pollIntervalMs: 50, telemetry: log.telemetry };
  const relay = createRelay(store, sender, options);
  await append("first", 5);
  relay.start();
  try {
    await sender.until(5);
    await log.until("message.sent", 5);

    const { rows } = await pool.query("SHOW data_directory");
    const data = rows[0].data_directory as string;
    await server.halt();
    await run("cp", ["-a", data, `${data}.${order}`]);
    await server.restart();

    // Read by the relay, and in flight, when the primary is lost with all of them.
    const read = () => log.of("relay.read").reduce((sum, { count }) => sum + count, 0);
    const before = read();
    await append("lost", 20);
    await expect.poll(read).toBe(before + 20);
    await server.kill();
    await rename(data, `${data}.before-${order}`);
    await rename(`${data}.${order}`, data);
    await writeFile(`${data}/standby.signal`, "");
    await server.restart();
    await pool.query("SELECT pg_promote()");
    await append("next", 20);
    confirming.open();
    await log.until("relay.server-changed");
    await expect.poll(() => sender.ids().filter((id) => id.startsWith("next"))).toHaveLength(20);
    await expect.poll(async () => (await pool.query(`SELECT FROM ${schema}.outbox_pending`)).rowCount).toBe(0);
  } finally {
    await relay.stop();
  }
  const next = sender.ids().filter((id) => id.startsWith("next"));
  expect(next).toEqual(testMessages("next", 20).map(({ id }) => id));
});
