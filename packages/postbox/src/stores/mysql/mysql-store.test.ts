import { randomBytes } from "node:crypto";
import { gate, testMessage } from "@postbox/testkit";
import { describeOnEach, mysqlTestData } from "@postbox/testkit/servers";
import { createPool, type PoolOptions } from "mysql2/promise";
import { afterAll, expect, it } from "vitest";
import { mysql2Transactions } from "../../transactions/mysql2.js";
import { type MigrationOptions, migrationSql, mysqlStore } from "./index.js";
import { nowSql } from "./names.js";
import { migrationSteps } from "./schema.js";

const hourMs = 3_600_000;

describeOnEach("mariadb", ({ url }) => {
  const data = mysqlTestData({ url, transactions: mysql2Transactions });
  const { pool, database } = data;
  const poolWith = (options: PoolOptions) => createPool({ uri: url, database, ...options });
  afterAll(data.drop);

  it("a migration that was interrupted after any statement is completed by the next one", async () => {
    const own = `test_${randomBytes(6).toString("hex")}`;
    const store = mysqlStore({ pool, database: own });
    const steps = migrationSteps(own);
    try {
      for (let done = 0; done <= steps.length; done += 3) {
        await pool.query(`CREATE DATABASE ${own}`);
        for (const step of steps.slice(0, done)) await pool.query(step);
        await store.migrate();
        await store.transaction((tx) => store.append(tx, "outbox", [testMessage("m")]));
        expect((await store.admin.list()).messages).toHaveLength(1);
        await pool.query(`DROP DATABASE ${own}`);
      }
    } finally {
      await pool.query(`DROP DATABASE IF EXISTS ${own}`);
    }
  });

  it("without tables, a store says so, and health reports it", async () => {
    const own = `test_${randomBytes(6).toString("hex")}`;
    const store = mysqlStore({ pool, database: own });
    const gone = await store
      .box("outbox")
      .read([])
      .catch((thrown: unknown) => thrown);
    // A database that does not exist is refused by MySQL, and has no tables for MariaDB.
    expect(["store-refused", "schema-missing"]).toContain((gone as { code?: unknown }).code);
    await pool.query(`CREATE DATABASE ${own}`);
    const missing = { code: "schema-missing", message: expect.stringContaining("store.migrate()") };
    await expect(store.box("outbox").read([])).rejects.toMatchObject(missing);
    await expect(store.transaction((tx) => store.append(tx, "outbox", [testMessage("m")]))).rejects.toMatchObject(
      missing,
    );
    expect(await store.health()).toMatchObject({ healthy: false, problems: [{ code: "schema-missing" }] });
    await pool.query(`DROP DATABASE ${own}`);
  });

  it("a server that refuses the login, or is not there, is told apart", async () => {
    const { port } = new URL(url);
    const refusing = createPool({ host: "127.0.0.1", port: Number(port || 3306), user: "nobody", database });
    const away = createPool({ host: "127.0.0.1", port: 1, database });
    const refused = mysqlStore({ pool: refusing });
    const error = await refused
      .box("outbox")
      .read([])
      .catch((thrown: unknown) => thrown);
    expect(refused.isRefused(error), String(error)).toBe(true);
    expect((await refused.health()).problems).toMatchObject([{ code: "store-refused" }]);
    const unreachable = mysqlStore({ pool: away });
    const lost = await unreachable
      .box("outbox")
      .read([])
      .catch((thrown: unknown) => thrown);
    expect(unreachable.isUnavailable(lost), String(lost)).toBe(true);
    expect((await unreachable.health()).problems).toMatchObject([{ code: "unreachable" }]);
    await refusing.end();
    await away.end();
  });

  it("times do not depend on the zone of a session, also when clocks are set back", async () => {
    const { store } = await data.create();
    const zoned = poolWith({ connectionLimit: 1, timezone: "-08:00" });
    await zoned.query("SET time_zone = '+05:30'");
    // In Europe, an hour of this night comes twice.
    for (const second of [1_792_889_999, 1_792_890_000, 1_792_893_599, 1_792_893_600]) {
      await zoned.query(`SET timestamp = ${second}`);
      for (const zone of ["+05:30", "+02:00", "+01:00", "-08:00"]) {
        await zoned.query(`SET time_zone = '${zone}'`);
        const [rows] = await zoned.query(`SELECT ${nowSql} AS now`);
        expect(rows).toEqual([{ now: second * 1_000_000 }]);
      }
    }
    await zoned.query("SET timestamp = DEFAULT, time_zone = '+05:30'");
    const elsewhere = mysqlStore({ pool: zoned });
    const deliverAt = new Date(Date.now() + hourMs).toISOString();
    await elsewhere.transaction((tx) => elsewhere.append(tx, "outbox", [testMessage("m", { deliverAt })]));
    const { nextInMs = 0 } = await store.box("outbox").promote(10);
    expect(Math.abs(nextInMs - hourMs)).toBeLessThan(30_000);
    expect((await store.admin.list()).messages[0]?.dueAt?.toISOString()).toBe(deliverAt);
    await zoned.end();
  });

  it("a message survives any character set, SQL mode and row form of the user's connection", async () => {
    const { store } = await data.create();
    const odd = poolWith({
      connectionLimit: 1,
      charset: "latin1_swedish_ci",
      rowsAsArray: true,
      flags: ["-FOUND_ROWS"],
    });
    await odd.query("SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,NO_AUTO_VALUE_ON_ZERO'");
    const own = mysqlStore({ pool: odd });
    const text = `it's "\\" 漢字🙈 \\' ?`;
    const message = testMessage("m", { key: text, subject: text, headers: { h: text } });
    await own.transaction(async (tx) => {
      await own.append(tx, "outbox", [message], { strictKeyOrder: true });
      await own.append(tx, "outbox", [testMessage("s", { deliverAt: "9999-12-31T23:59:59.999Z", scheduleKey: text })]);
      expect(await own.tick(tx, text)).toMatchObject({ claimed: false });
    });
    const [found] = await store.admin.get("m");
    expect(found?.message).toMatchObject({ key: text, subject: text, headers: { h: text } });
    expect(await own.transaction((tx) => own.cancel(tx, "outbox", testMessage("s").type, text))).toBe(true);
    await odd.end();
  });

  it("a message that is too large for the server is refused before it would end the connection", async () => {
    const { store } = await data.create();
    const [rows] = await pool.query("SELECT @@max_allowed_packet AS bytes");
    const { bytes = 0 } = (rows as { bytes: number }[])[0] ?? {};
    const large = { ...testMessage("large"), data: new Uint8Array(bytes / 2) };
    await store.transaction(async (tx) => {
      await expect(store.append(tx, "outbox", [large])).rejects.toMatchObject({ code: "message-too-large" });
      await store.append(tx, "outbox", [{ ...testMessage("fits"), data: new Uint8Array(bytes / 4) }]);
    });
    expect((await store.admin.list()).messages.map(({ id }) => id)).toEqual(["fits"]);
    const arrival = { consumer: "billing", id: "large", message: large };
    const kept = store.inbox.keep([arrival], { retentionMs: 60_000, lockTimeoutMs: 5_000 });
    await expect(kept).rejects.toMatchObject({ code: "message-invalid" });
  });

  it("a call that is given up ends on the server, and its connection is not used again", async () => {
    const { store } = await data.create();
    const box = store.box("outbox");
    await box.renew("me", 60_000, "key");
    const lanes = await box.own("me", 64);
    const [locked, mayEnd] = [gate(), gate()];
    const holder = store.transaction(async (tx) => {
      await tx.query(`SELECT lane FROM ${database}.postbox_lane FOR UPDATE`);
      locked.open();
      await mayEnd.opened;
    });
    await locked.opened;
    const stop = new AbortController();
    const reason = new Error("no time left");
    const waiting = Array.from({ length: 8 }, () => box.settle(lanes, [], {}, stop.signal));
    const waits = async () => {
      const [rows] = await pool.query(
        "SELECT COUNT(*) AS count FROM information_schema.processlist WHERE info LIKE ?",
        [`SELECT lane, epoch FROM \`${database}\`%`],
      );
      return Number((rows as { count: number }[])[0]?.count);
    };
    await expect.poll(waits).toBe(3);
    stop.abort(reason);
    for (const each of waiting) await expect(each).rejects.toBe(reason);
    await expect.poll(waits).toBe(0);
    mayEnd.open();
    await holder;
    expect((await box.settle(lanes, [])).standing.size).toBe(64);
  });

  it("registrations of connections that append no more are removed, except in open transactions", async () => {
    const { store } = await data.create();
    const old = `INSERT INTO ${database}.postbox_writer (connection, appends, at) VALUES (1, 5, 0), (2, 5, 0)`;
    await pool.query(`DELETE FROM ${database}.postbox_writer`);
    await pool.query(old);
    const [locked, mayEnd] = [gate(), gate()];
    const holder = store.transaction(async (tx) => {
      await tx.query(`UPDATE ${database}.postbox_writer SET appends = 6 WHERE connection = 2`);
      locked.open();
      await mayEnd.opened;
    });
    await locked.opened;
    for (let beat = 0; beat < 60; beat++) await store.box("outbox").renew("me", 60_000, "key");
    mayEnd.open();
    await holder;
    const [rows] = await pool.query(`SELECT connection, appends FROM ${database}.postbox_writer`);
    expect(rows).toEqual([{ connection: 2, appends: 6 }]);
  });

  it("a pool without a database needs the option, and the script may name one", () => {
    const nowhere = createPool({ uri: url });
    expect(() => mysqlStore({ pool: nowhere })).toThrow("give the pool a database, or the store the option 'database'");
    expect(mysqlStore({ pool: nowhere, database: "shop" }).database).toBe("shop");
    expect(migrationSteps("a`b")[0]).toContain("CREATE TABLE IF NOT EXISTS `a``b`.`postbox_version`");
    expect(migrationSql({ database: "shop" })).toContain("CREATE TABLE IF NOT EXISTS `shop`.`postbox_box`");
    expect(migrationSql()).toContain("CREATE TABLE IF NOT EXISTS `postbox_box`");
    expect(() => migrationSql({ database: "a`b" } as MigrationOptions)).toThrow("option-invalid");
    void nowhere.end();
  });
});
