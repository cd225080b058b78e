import { recordingSender, telemetryLog, testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { createRelay } from "postbox";
import { afterAll, beforeEach, expect, it } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";
import { postgresStore } from "./postgres-store.js";

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;

  beforeEach(async () => void (await data.create()));
  afterAll(data.drop);

  it("parks a row with more data than can be read, and goes on", async () => {
    const store = postgresStore({ pool, schema });
    const append = (...ids: string[]) =>
      store.transaction((tx) =>
        store.append(
          tx,
          "outbox",
          ids.map((id) => testMessage(id, { key: id })),
        ),
      );
    await append("good", "huge");
    await pool.query(`ALTER TABLE ${schema}.outbox_pending DISABLE TRIGGER ALL`);
    await pool.query(
      `UPDATE ${schema}.outbox_pending SET data = convert_to(repeat('x', 270 * 1024 * 1024), 'UTF8') WHERE id = 'huge'`,
    );
    const log = telemetryLog();
    const sender = recordingSender();
    const relay = createRelay(store, sender, { pollIntervalMs: 20, telemetry: log.telemetry });
    relay.start();
    await sender.until(1);
    await log.until("message.parked");
    await relay.stop();
    expect(sender.ids()).toEqual(["good"]);
    const [found] = await store.admin.get("huge");
    expect(found).toMatchObject({ status: "parked", unreadable: expect.stringContaining("data has more than") });
    expect(await store.admin.discard({ ids: ["huge"] }, { by: "test" })).toMatchObject({ count: 1 });
  });

  it.each(["key", "total", "none"] as const)(
    "parks a row that is not a valid message as it is, and goes on (order %s)",
    async (order) => {
      const store = postgresStore({ pool, schema });
      const append = (id: string) =>
        store.transaction((tx) => store.append(tx, "outbox", [testMessage(id, { key: "k" })]));
      await append("before");
      // A row of another program, written while the checks are off.
      await pool.query(`ALTER TABLE ${schema}.outbox_pending DISABLE TRIGGER ALL`);
      await pool.query(
        `INSERT INTO ${schema}.outbox_pending (box, lane, id, source, type, content_type, topic, key, extensions, headers, data)
       SELECT box, lane, 'bad', source, type, content_type, '', key, '[1]', 'null', data FROM ${schema}.outbox_pending`,
      );
      await pool.query(`ALTER TABLE ${schema}.outbox_pending ENABLE TRIGGER ALL`);
      await append("after");
      const log = telemetryLog();
      const sender = recordingSender();
      const relay = createRelay(store, sender, { order, pollIntervalMs: 20, telemetry: log.telemetry });
      relay.start();
      await sender.until(2);
      await log.until("message.parked");
      await relay.stop();
      expect(sender.ids()).toEqual(["before", "after"]);
      const { rows } = await pool.query(
        `SELECT id, topic, headers::text, extensions::text, reason FROM ${schema}.outbox_parked`,
      );
      expect(rows).toEqual([
        {
          id: "bad",
          topic: "",
          headers: "null",
          extensions: "[1]",
          reason: expect.stringContaining("[message-invalid]"),
        },
      ]);
      expect(await store.admin.discard({ ids: ["bad"] }, { by: "test" })).toMatchObject({ count: 1 });
    },
  );
});
