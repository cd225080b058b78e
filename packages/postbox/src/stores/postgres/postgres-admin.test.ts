import { faultySender, gate, recordingSender, testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { constant, createRelay } from "postbox";
import { afterAll, expect, it } from "vitest";
import type { BoxStats } from "../../admin.js";
import type { Row } from "../../store.js";
import { pgTransactions } from "../../transactions/pg.js";
import { freeKeysSql, lockLanesSql, retrySql } from "./admin-sql.js";
import { boxTables } from "./names.js";

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const t = boxTables(schema, "outbox");
  afterAll(data.drop);

  const unsent = ({ pending, waiting, parked, done }: BoxStats) =>
    [pending, waiting, parked, done].reduce((sum, part) => sum + (part?.count ?? 0), 0);

  it("stats are the truth of one moment while relays and producers work", async () => {
    const { store } = await data.create();
    await pool.query(`CREATE TABLE ${schema}.produced (n int)`);
    let stopped = false;
    /** Writes two messages of two topics each time, and a row that records it. */
    const produce = async (producer: number) => {
      for (let n = 0; !stopped; n++) {
        await store.transaction(async (tx) => {
          const both = ["first", "second"].map((topic) =>
            testMessage(`${producer}-${n}-${topic}`, { topic, key: `k${n % 9}` }),
          );
          await store.append(tx, "outbox", both);
          await tx.query(`INSERT INTO ${schema}.produced VALUES (2)`);
        });
      }
    };
    const produced = async () => Number((await pool.query(`SELECT sum(n) FROM ${schema}.produced`)).rows[0].sum ?? 0);
    let count = 0;
    const sender = faultySender(recordingSender(), () => {
      count++;
      return count % 11 === 0 ? "failed" : count % 97 === 0 ? "rejected" : undefined;
    });
    const timing = { leaseMs: 3_000, pollIntervalMs: 20, publishTimeoutMs: 900, backoff: constant(5) };
    const relay = createRelay(store, sender, { ...timing, onSent: "keep" });
    const producing = [1, 2, 3].map(produce);
    relay.start();
    try {
      // Until the sender has rejected some, even on a slow machine: rejected messages are parked.
      for (let look = 0; look < 40 || count < 300; look++) {
        const before = await produced();
        const stats = await store.admin.stats({ done: true });
        const after = await produced();
        // All counts are of the same moment, so no message that changes its table is missed or counted twice.
        expect(unsent(stats)).toBeGreaterThanOrEqual(before);
        expect(unsent(stats)).toBeLessThanOrEqual(after);
        expect(unsent(stats) % 2).toBe(0);
        const inTopics = stats.topics.reduce((sum, topic) => sum + topic.pending + topic.waiting + topic.parked, 0);
        expect(inTopics).toBe(unsent(stats) - (stats.done?.count ?? 0));
      }
    } finally {
      stopped = true;
      await Promise.all(producing);
      await relay.stop();
    }
    const { rows } = await pool.query(
      `SELECT (SELECT count(*) FROM ${t.pending}) AS pending, (SELECT count(*) FROM ${t.wait}) AS waiting,
              (SELECT count(*) FROM ${t.parked}) AS parked,
              (SELECT count(*) FROM ${t.done}) + (SELECT count(*) FROM ${t.overflow}) AS done`,
    );
    const stats = await store.admin.stats({ done: true });
    for (const [status, expected] of Object.entries(rows[0])) {
      expect([status, stats[status as "pending"].count]).toEqual([status, Number(expected)]);
    }
    expect(stats.parked.count).toBeGreaterThan(0);
  });

  it("a retry waits for the settle that is about to end the hold of its key, and is not left behind it", async () => {
    const { store } = await data.create();
    const box = store.box("outbox");
    await store.transaction((tx) =>
      store.append(
        tx,
        "outbox",
        ["1", "2"].map((id) => testMessage(id, { key: "k" })),
      ),
    );
    await box.renew("relay-1", 60_000, "key");
    const lanes = await box.own("relay-1", 64);
    const [first, second] = (await box.read(lanes.map(({ lane }) => ({ lane, limit: 10 })))).rows;
    if (first === undefined || second === undefined) throw new Error("two rows were appended");
    await box.settle(lanes, [{ row: first, to: "parked", attempts: 1, error: "no", hold: true }]);
    await box.settle(lanes, [{ row: second, to: "wait", attempts: 0 }]);
    await store.admin.release("k", { by: "test" });

    // The last waiting row is sent, which ends the hold. The statement has run but is not committed.
    const settled = gate();
    const settling = store.transaction(async (tx) => {
      await tx.query(`SELECT FROM ${t.lane} WHERE lane = $1 FOR KEY SHARE`, [second.lane]);
      await tx.query(`DELETE FROM ${t.wait}`);
      await tx.query(`DELETE FROM ${t.hold}`);
      settled.open();
      await blocked();
    });
    await settled.opened;
    expect(await store.admin.retry({ ids: ["1"] }, { by: "test" })).toEqual({ count: 1 });
    await settling;
    // Without a hold, a row in `wait` would never be read.
    expect((await pool.query(`SELECT id FROM ${t.pending}`)).rows).toEqual([{ id: "1" }]);
    expect((await pool.query(`SELECT id FROM ${t.wait}`)).rows).toEqual([]);
  });

  it("a settle that waits for a retry does not end the hold that the retry needs", async () => {
    const { store } = await data.create();
    const box = store.box("outbox");
    await store.transaction((tx) =>
      store.append(
        tx,
        "outbox",
        ["1", "2"].map((id) => testMessage(id, { key: "k" })),
      ),
    );
    await box.renew("relay-1", 60_000, "key");
    const lanes = await box.own("relay-1", 64);
    const reads = lanes.map(({ lane }) => ({ lane, limit: 10 }));
    const [first, second] = (await box.read(reads)).rows as [Row, Row];
    await box.settle(lanes, [{ row: first, to: "parked", attempts: 1, error: "no" }]);
    await box.settle(lanes, [{ row: second, to: "wait", attempts: 1, retryInMs: 0, error: "not now" }]);
    const [waiting] = (await box.due(reads)) as [Row];

    // The retry has locked the lane. The settle of the last waiting row has started and waits at the fence.
    const locked = gate();
    const holding = store.transaction(async (tx) => {
      await tx.query(lockLanesSql(t), [[first.lane]]);
      locked.open();
      await blocked("outbox_settle");
      await tx.query(retrySql(t), [[first.lane], [first.position], "test", null, "{}", null]);
      await tx.query(freeKeysSql(t), [[first.lane], ["k"]]);
    });
    await locked.opened;
    await box.settle(lanes, [{ row: waiting, to: "sent" }]);
    await holding;
    expect((await box.due(reads)).map(({ message }) => message.id)).toEqual(["1"]);
  });

  it.each(["discard", "retry"] as const)(
    "a settle that waits for a %s of the last row behind it leaves no hold",
    async (action) => {
      const { store, contents } = await data.create();
      const box = store.box("outbox");
      await store.transaction((tx) =>
        store.append(
          tx,
          "outbox",
          ["1", "2"].map((id) => testMessage(id, { key: "k" })),
        ),
      );
      await box.renew("relay-1", 60_000, "key");
      const lanes = await box.own("relay-1", 64);
      const reads = lanes.map(({ lane }) => ({ lane, limit: 10 }));
      const [first, second] = (await box.read(reads)).rows as [Row, Row];
      await box.settle(lanes, [{ row: first, to: "wait", attempts: 1, retryInMs: 0, error: "not now" }]);
      await box.settle(lanes, [{ row: second, to: "wait", attempts: 0 }]);
      const [waiting] = (await box.due(reads)) as [Row];

      // The operator's change comes before the settle, which has seen both rows and will delete the first.
      const locked = gate();
      const ahead = store.transaction(async (tx) => {
        await tx.query(lockLanesSql(t), [[first.lane]]);
        locked.open();
        await blocked("outbox_settle");
      });
      await locked.opened;
      const selection = { ids: ["2"], status: "waiting" } as const;
      const changing =
        action === "discard"
          ? store.admin.discard(selection, { by: "test" })
          : store.admin.retry(selection, { by: "test" });
      await blocked("FOR UPDATE");
      await box.settle(lanes, [{ row: waiting, to: "sent" }]);
      await Promise.all([ahead, changing]);
      const left = await contents("outbox");
      expect(left).toMatchObject(action === "discard" ? { wait: [], holds: [] } : { wait: ["2"], holds: ["k"] });
    },
  );

  /** Resolves when a statement waits for a lock on the lanes. */
  async function blocked(at = "FOR UPDATE"): Promise<void> {
    const waiting = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%${schema}%${at}%'`;
    for (let looks = 0; looks < 200; looks++) {
      if (((await pool.query(waiting)).rowCount ?? 0) > 0) return;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    throw new Error("nobody waits");
  }

  it("lists, gets and discards a row that is no message, and does not retry it", async () => {
    const { store, contents } = await data.create();
    await pool.query(`
      INSERT INTO ${t.parked} (box, lane, position, id, source, type, content_type, topic, key, extensions, headers, data, attempts, reason)
      VALUES (0, 1, 1, 'null headers', '/s', 't', 'a/b', 't', NULL, '{}', 'null', '', 0, 'unreadable'),
             (0, 1, 2, 'odd', '/s', '', 'a/b', '', '', '{"a": {}, "b": 1}', '{"h": 1, "g": "x"}', '\\x01', 0, 'unreadable'),
             (0, 1, 3, 'good', '/s', 't', 'a/b', 't', 'k', '{"a": true}', '{"h": "x"}', '', 0, 'refused')`);
    const { messages } = await store.admin.list({ status: "parked" });
    expect(messages.map(({ id }) => id)).toEqual(["good", "odd", "null headers"]);
    const [first, second, third] = await Promise.all(
      ["null headers", "odd", "good"].map(async (id) => (await store.admin.get(id))[0]),
    );
    expect(first).toMatchObject({ unreadable: "headers is not an object of strings", message: { headers: {} } });
    expect(second).toMatchObject({ message: { extensions: { b: 1 }, headers: { g: "x" }, data: Uint8Array.of(1) } });
    for (const column of ["extensions", "headers", "type", "topic", "key"])
      expect(second?.unreadable).toContain(column);
    expect(third).not.toHaveProperty("unreadable");

    const by = { by: "ann" };
    expect(await store.admin.retry({ ids: ["null headers", "odd", "good"] }, by)).toEqual({ count: 1 });
    const { confirm } = await store.admin.dryRun("retry", {});
    expect(await store.admin.retry({}, { ...by, confirm })).toEqual({ count: 0 });
    expect(await store.admin.discard({ ids: ["null headers", "odd"] }, by)).toEqual({ count: 2 });
    expect(await contents("outbox")).toMatchObject({ pending: ["good"], parked: [] });
  });
});
