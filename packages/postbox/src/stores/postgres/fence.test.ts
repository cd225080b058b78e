import { gate, settlesWithin, testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import type { Box, Executor, Lane, Row, Writers } from "../../store.js";
import { pgTransactions } from "../../transactions/pg.js";
import { boxTables, outboxNumber } from "./names.js";
import { postgresBox } from "./postgres-box.js";
import { postgresStore } from "./postgres-store.js";

/** Statements of two relays that overlap in time, which a test on one connection cannot produce. */
describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 8 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const tables = boxTables(schema, "outbox");
  let box: Box;
  let lanes: readonly Lane[];
  let row: Row;

  beforeEach(async () => {
    await data.create();
    const store = postgresStore({ pool, schema });
    await store.transaction((tx) => store.append(tx, "outbox", [testMessage("m1", { key: "k" })]));
    box = store.box("outbox");
    await box.renew("relay-1", 60_000, "key");
    lanes = (await box.own("relay-1", 64)).map(({ lane, epoch }) => ({ lane, epoch }));
    for (const other of ["relay-2", "relay-3"]) await box.renew(other, 60_000, "key");
    row = (await box.read(lanes.map(({ lane }) => ({ lane, limit: 10 })))).rows[0] as Row;
  });
  afterAll(data.drop);

  /** A box whose statements have all run but do not commit before `go` opens. */
  function slowBox() {
    const [ran, go] = [gate(), gate()];
    const run: Executor = (text, params) =>
      pgTransactions(pool).begin(async (client) => {
        const { rows, rowCount } = await client.query(text, params as unknown[]);
        ran.open();
        await go.opened;
        return { rows, rowCount: rowCount ?? 0 };
      });
    return {
      box: postgresBox(
        schema,
        "outbox",
        () => outboxNumber,
        run,
        async () => {},
      ),
      ran,
      go,
    };
  }

  const expireLease = () =>
    pool.query(`UPDATE ${tables.member} SET expires_at = clock_timestamp() - interval '1 s' WHERE owner = 'relay-1'`);
  const pending = async () => (await pool.query(`SELECT id FROM ${tables.pending}`)).rows.length;

  it.each([false, true])("settles a row that is changed while it waits for it (keep: %s)", async (keep) => {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      await client.query(`UPDATE ${tables.pending} SET crashes = 1`);
      const settling = box.settle(lanes, [{ row, to: "sent" }], { keep });
      expect(await settlesWithin(settling, 150)).toBe(false);
      await client.query("COMMIT");
      await settling;
    } finally {
      client.release();
    }
    expect(await pending()).toBe(0);
  });

  describe("a settle in progress", () => {
    it("makes a take-over wait, whose new owner then sees what it did", async () => {
      const slow = slowBox();
      const settling = slow.box.settle(lanes, [{ row, to: "sent" }]);
      await slow.ran.opened;
      await expireLease();
      const taking = box.own("relay-2", 64);
      const early = await settlesWithin(taking, 150);
      slow.go.open();
      expect(early).toBe(false);
      expect((await settling).standing.size).toBe(64);
      expect(await taking).toHaveLength(64);
      expect(await pending()).toBe(0);
    });

    it("reports which of the writers in progress it was", async () => {
      for (const settlement of [
        { row, to: "wait", attempts: 1, retryInMs: 0 } as const,
        { row: { ...row, waiting: true }, to: "sent" } as const,
        { row, to: "sent" } as const,
      ]) {
        const slow = slowBox();
        const settling = slow.box.settle(lanes, [settlement]);
        await slow.ran.opened;
        const { writers } = await box.read([{ lane: row.lane, limit: 1 }]);
        slow.go.open();
        const { writer } = await settling;
        expect(writer?.without(writers as Writers).none).toBe(true);
      }
    });

    it("does not hold up a renewal, another settle, or who stands by", async () => {
      const slow = slowBox();
      const settling = slow.box.settle(lanes, [{ row, to: "sent" }]);
      await slow.ran.opened;
      const others = Promise.all([box.renew("relay-1", 60_000, "key"), box.settle(lanes, []), box.own("relay-2", 64)]);
      const free = await settlesWithin(others, 3000);
      slow.go.open();
      await settling;
      expect(free).toBe(true);
      const [renewed, { standing }, taken] = await others;
      expect(renewed).toEqual({ paused: false, others: expect.anything(), lanes });
      expect(standing.size).toBe(64);
      expect(taken).toEqual([]);
    });
  });

  describe("a take-over in progress", () => {
    it("makes a settle of the former owner wait, which then changes nothing", async () => {
      await expireLease();
      const slow = slowBox();
      const taking = slow.box.own("relay-2", 64);
      await slow.ran.opened;
      const settling = box.settle(lanes, [{ row, to: "parked", attempts: 1, error: "late" }]);
      const early = await settlesWithin(settling, 150);
      slow.go.open();
      expect(early).toBe(false);
      expect(await taking).toHaveLength(64);
      expect([...(await settling).standing]).toEqual([]);
      expect(await pending()).toBe(1);
      expect((await pool.query(`SELECT FROM ${tables.parked}`)).rowCount).toBe(0);
    });

    it("is seen by the next renewal of the former owner", async () => {
      await expireLease();
      expect(await box.own("relay-2", 64)).toHaveLength(64);
      expect((await box.renew("relay-1", 60_000, "key")).lanes).toEqual([]);
    });

    it("makes a second one wait, which then gets nothing", async () => {
      await expireLease();
      const slow = slowBox();
      const taking = slow.box.own("relay-2", 64);
      await slow.ran.opened;
      const second = box.own("relay-3", 64);
      const early = await settlesWithin(second, 150);
      slow.go.open();
      expect(early).toBe(false);
      expect(await taking).toHaveLength(64);
      expect(await second).toEqual([]);
    });
  });

  it("a renewal in progress makes a take-over wait, which then gets nothing", async () => {
    await expireLease();
    const slow = slowBox();
    const renewing = slow.box.renew("relay-1", 60_000, "key");
    await slow.ran.opened;
    const taking = box.own("relay-2", 64);
    const early = await settlesWithin(taking, 150);
    slow.go.open();
    expect(early).toBe(false);
    expect((await renewing).lanes).toHaveLength(64);
    expect(await taking).toEqual([]);
  });

  it("a release in progress makes a take-over wait, without a deadlock", async () => {
    for (let round = 0; round < 20; round++) {
      await box.renew("relay-2", 60_000, "key");
      const done = Promise.all([
        box.release("relay-1"),
        box.own("relay-2", 64),
        box.renew("relay-1", 60_000, "key"),
        box.own("relay-1", 64),
        box.settle(lanes, []),
        box.release("relay-2"),
      ]);
      await expect(done).resolves.toBeDefined();
    }
  });
});
