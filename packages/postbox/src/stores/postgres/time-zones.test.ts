import { testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { afterAll, expect, it } from "vitest";
import { pgTransactions, postgresStore } from "./index.js";

const zones = ["Asia/Kolkata", "America/Los_Angeles"] as const;

describeOnEach("postgres", ({ url }) => {
  const data = postgresTestData({
    connect: () => new pg.Pool({ connectionString: url }),
    transactions: pgTransactions,
  });
  const pools = zones.map((zone) => new pg.Pool({ connectionString: url, options: `-c TimeZone=${zone}` }));
  afterAll(async () => {
    await Promise.all(pools.map((pool) => pool.end()));
    await data.drop();
  });

  it("leases, holds and ages are the same in sessions of any time zone", async () => {
    const { advance } = await data.create();
    const [east, west] = pools.map((pool) => postgresStore({ pool, schema: data.schema }).box("outbox"));
    if (east === undefined || west === undefined) throw new Error("there are two zones");
    const shown = await Promise.all(pools.map(async (pool) => (await pool.query("SHOW TimeZone")).rows[0].TimeZone));
    expect(shown).toEqual(zones);
    const store = postgresStore({ pool: pools[0] as pg.Pool, schema: data.schema });
    await store.transaction((tx) => store.append(tx, "outbox", [testMessage("m1", { key: "k" })]));

    await east.renew("east", 60_000, "key");
    const lanes = await east.own("east", 64);
    const { others } = await west.renew("west", 60_000, "key");
    expect(others).toMatchObject([{ owner: "east" }]);
    expect(others[0]?.expiresInMs).toBeGreaterThan(50_000);
    expect(others[0]?.expiresInMs).toBeLessThanOrEqual(60_000);
    expect(await west.own("west", 64)).toEqual([]);

    const every = lanes.map(({ lane }) => ({ lane, limit: 10 }));
    const [row] = (await west.read(every)).rows;
    if (row === undefined) throw new Error("the message is not there");
    const {
      rows: [late],
    } = await west.late([{ lane: row.lane, after: 0, upTo: row.position, known: [] }], 10);
    expect(late?.ageMs).toBeGreaterThanOrEqual(0);
    expect(late?.ageMs).toBeLessThan(60_000);
    expect(row.message.time).toBe(testMessage("m1").time);

    await east.settle(lanes, [{ row, to: "wait", attempts: 1, retryInMs: 10_000, error: "no" }]);
    expect(await west.due(every)).toEqual([]);
    await advance(10_001);
    expect((await west.due(every)).map(({ message }) => message.id)).toEqual(["m1"]);
  });
});
