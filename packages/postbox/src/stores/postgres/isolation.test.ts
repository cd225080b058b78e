import { gate, settlesWithin, testMessage, testMessages } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { afterAll, beforeEach, expect, it } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";
import { type PostgresStore, postgresStore } from "./postgres-store.js";

/**
 * A database whose default is not the level that the relay's statements need. User transactions keep that default: a
 * lost race for `remember` fails like any other write and is retried.
 */
describeOnEach("postgres", ({ url }) => {
  const options = "-c default_transaction_isolation=serializable";
  const connect = () => new pg.Pool({ connectionString: url, max: 12, options });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  let store: PostgresStore<pg.ClientBase>;

  beforeEach(async () => {
    await data.create();
    store = postgresStore({ pool, schema });
  });
  afterAll(data.drop);

  const everyLane = (limit: number) => Array.from({ length: 64 }, (_, lane) => ({ lane, limit }));

  it("leaves the user's transactions at the user's level", async () => {
    const { rows } = await store.transaction((tx) => tx.query("SHOW transaction_isolation"));
    expect(rows[0].transaction_isolation).toBe("serializable");
  });

  it("gives each lane to one of many at once, and fails none", async () => {
    const boxes = Array.from({ length: 8 }, () => postgresStore({ pool, schema }).box("outbox"));
    const taken = await Promise.all(
      boxes.map(async (box, index) => {
        await box.renew(`relay-${index}`, 60_000, "key");
        return box.own(`relay-${index}`, 64);
      }),
    );
    const lanes = taken.flat().map(({ lane }) => lane);
    expect(lanes.length).toBeGreaterThan(0);
    expect(new Set(lanes).size).toBe(lanes.length);
  });

  it("lets a settle that meets a take-over wait for it, and then change nothing", async () => {
    await store.transaction((tx) => store.append(tx, "outbox", [testMessage("m1")]));
    const box = store.box("outbox");
    await box.renew("relay-1", 60_000, "key");
    const lanes = await box.own("relay-1", 64);
    const { rows } = await box.read(everyLane(1));
    const [taken, go] = [gate(), gate()];
    const taking = pgTransactions(pool).begin(async (client) => {
      await client.query(`UPDATE ${schema}.outbox_lane SET epoch = epoch + 1`);
      taken.open();
      await go.opened;
    });
    await taken.opened;
    const settling = box.settle(
      lanes,
      rows.map((row) => ({ row, to: "sent" })),
    );
    const early = await settlesWithin(settling, 150);
    go.open();
    await taking;
    expect(early).toBe(false);
    expect((await settling).standing.size).toBe(0);
  });

  it("lets a relay read and settle amid appends, and fails neither", async () => {
    const box = store.box("outbox");
    await box.renew("relay-1", 60_000, "key");
    const lanes = await box.own("relay-1", 64);
    const appends = Array.from({ length: 5 }, async (_, writer) => {
      for (const message of testMessages(`w${writer}`, 20, { key: `k${writer}` })) {
        await store.transaction((tx) => store.append(tx, "outbox", [message]));
      }
    });
    const done = Promise.all(appends);
    let sent = 0;
    while (sent < 100) {
      const { rows } = await box.read(everyLane(10));
      await box.settle(
        lanes,
        rows.map((row) => ({ row, to: "sent" })),
      );
      sent += rows.length;
    }
    await done;
    expect(sent).toBe(100);
  });
});
