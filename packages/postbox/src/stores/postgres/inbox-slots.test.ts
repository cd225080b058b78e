import { describeOnEach, postgresTestData, remember, testMessage } from "@postbox/testkit";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";
import { slotAt } from "./inbox-slots.js";
import { postgresStore } from "./postgres-store.js";

const week = 7 * 24 * 3_600_000;

describe("the slot of a time", () => {
  it("is that of its week, and the same again sixteen weeks later", () => {
    const now = Date.parse("2026-01-01T00:00:00Z");
    const slots = Array.from({ length: 16 }, (_, n) => slotAt(now + n * week));
    expect(new Set(slots).size).toBe(16);
    expect(slotAt(now + 16 * week)).toBe(slotAt(now));
    expect(slotAt(null)).toBe(-1);
  });
});

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 2 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  beforeAll(data.create);
  afterAll(data.drop);
  const { pool, schema } = data;
  const handle = (id: string, time: Date) => {
    const store = postgresStore({ pool, schema });
    return store.transaction((tx) => remember(store, tx, "billing", testMessage(id, { time })));
  };
  const slotsOf = async (id: string) =>
    (await pool.query(`SELECT slot FROM ${schema}.inbox_message WHERE id = $1`, [id])).rows.map(({ slot }) => slot);

  it("is the same in the database", async () => {
    for (const [id, ago] of Object.entries({ now: 0, lately: 1.3 * week, long: 4 * week, soon: -0.5 * week })) {
      const time = new Date(Date.now() - ago);
      expect(await handle(id, time)).toBe("new");
      expect(await slotsOf(id)).toEqual([slotAt(time.getTime())]);
    }
  });

  it("is none for what is far ahead, which is known all the same when its time has come nearer", async () => {
    const time = new Date(Date.now() + 1.5 * week);
    expect(await handle("ahead", time)).toBe("new");
    expect(await slotsOf("ahead")).toEqual([-1]);
    // As it is a week later.
    expect(await handle("ahead", new Date(time.getTime() - week))).toBe("duplicate");
  });

  it("is all that a statement in the handler's transaction has to lock", async () => {
    const store = postgresStore({ pool, schema });
    const locked = await store.transaction(async (tx) => {
      await remember(store, tx, "billing", testMessage("locks", { time: new Date() }));
      const { rows } = await tx.query(
        "SELECT DISTINCT relation::regclass::text AS name FROM pg_locks WHERE pid = pg_backend_pid() AND relation IS NOT NULL",
      );
      return rows
        .map(({ name }) => String(name))
        .filter((name) => /inbox_message_\w+$/.test(name) && !name.endsWith("pkey"));
    });
    const own = `inbox_message_${String(slotAt(Date.now())).padStart(2, "0")}`;
    expect(locked.map((name) => name.split(".")[1]).sort()).toEqual([own, "inbox_message_untimed"].sort());
  });
});
