import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testMessage, testMessages } from "@postbox/testkit";
import { arrivalOf } from "@postbox/testkit/suites";
import Database from "libsql";
import { type Admin, createOutbox, defineEvent, type StandardSchema } from "postbox";
import { migrationSql, type SqliteStore, sqliteStore } from "postbox/sqlite";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";

const Placed = defineEvent({ type: "shop.v1.Placed", schema: z.object({ id: z.string() }), key: ({ id }) => id });

let folder: string;
const ending: (() => unknown)[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "postbox-sqlite-"));
});

afterEach(() => {
  for (const end of ending.splice(0).reverse()) end();
  rmSync(folder, { recursive: true, force: true });
});

function open(file = "shop.db"): Database.Database {
  const database = new Database(join(folder, file));
  ending.push(() => database.close());
  return database;
}

async function shop(options: { readonly lockTimeoutMs?: number } = {}) {
  const store = sqliteStore({ open: () => new Database(join(folder, "shop.db")), ...options });
  ending.push(() => store.close());
  await store.migrate();
  const database = open();
  database.exec("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)");
  const outbox = createOutbox(store, { source: "/orders" });
  const place = database.transaction((id: string, fails: boolean) => {
    database.prepare("INSERT INTO orders VALUES (?)").run(id);
    const published = outbox.in(database).publishSync(Placed, { id });
    if (fails) throw new Error("the card was refused");
    return published;
  });
  const ids = async () => (await store.admin.list()).messages.map(({ key }) => key).sort();
  const orders = () =>
    (database.prepare("SELECT id FROM orders ORDER BY id").all() as { id: string }[]).map(({ id }) => id);
  return { store, database, outbox, place, ids, orders };
}

describe("publishSync", () => {
  it("commits and rolls back with a synchronous transaction of the user's own connection", async () => {
    const { place, ids, orders } = await shop();
    expect(place("a", false)).toEqual({ id: expect.any(String) });
    expect(() => place("b", true)).toThrow("the card was refused");
    place("c", false);
    expect([await ids(), orders()]).toEqual([
      ["a", "c"],
      ["a", "c"],
    ]);
  });

  it("validates its data", async () => {
    const { database, outbox } = await shop();
    const publish = database.transaction(() => outbox.in(database).publishSync(Placed, { id: 1 as unknown as string }));
    expect(publish).toThrow(expect.objectContaining({ code: "data-invalid" }));
  });

  it("refuses what cannot be done at once", async () => {
    const { database, store, outbox } = await shop();
    const slow: StandardSchema<{ id: string }> = {
      "~standard": { version: 1, vendor: "slow", validate: async (value) => ({ value: value as { id: string } }) },
    };
    const Slow = defineEvent({ type: "shop.v1.Slow", schema: slow });
    const refused = expect.objectContaining({ code: "option-invalid" });
    expect(database.transaction(() => outbox.in(database).publishSync(Slow, { id: "a" }))).toThrow(refused);
    const wrapped = createOutbox(store, { source: "/orders", middleware: [async (messages, next) => next(messages)] });
    expect(database.transaction(() => wrapped.in(database).publishSync(Placed, { id: "a" }))).toThrow(refused);
  });
});

describe("a transaction", () => {
  it("is refused if none is open, or if it is in another file", async () => {
    const { database, outbox } = await shop();
    const refused = expect.objectContaining({ code: "not-a-transaction" });
    expect(() => outbox.in(database).publishSync(Placed, { id: "a" })).toThrow(refused);
    const other = open("other.db");
    expect(other.transaction(() => outbox.in(other).publishSync(Placed, { id: "a" }))).toThrow(refused);
  });

  it("is refused if it could be lost after its commit", async () => {
    const { database, outbox } = await shop();
    database.exec("PRAGMA synchronous = OFF");
    const publish = database.transaction(() => outbox.in(database).publishSync(Placed, { id: "a" }));
    expect(publish).toThrow(
      expect.objectContaining({ code: "option-invalid", message: expect.stringContaining("OFF") }),
    );
  });

  it("cannot end itself, but can use savepoints", async () => {
    const { store, ids, outbox } = await shop();
    for (const text of ["COMMIT", " rollback", "END", "begin", "/* as ever */ COMMIT", "SELECT 1; COMMIT"]) {
      await expect(store.transaction(async (tx) => tx.exec(text))).rejects.toMatchObject({ code: "transaction-ended" });
    }
    await store.transaction(async (tx) => {
      await outbox.in(tx).publish(Placed, { id: "a" });
      tx.exec("SAVEPOINT before");
      await outbox.in(tx).publish(Placed, { id: "b" });
      tx.exec("ROLLBACK TO before");
    });
    expect(await ids()).toEqual(["a"]);
  });

  it("that has ended does not lend its statements to the next one", async () => {
    const { store, orders } = await shop();
    const insert = await store.transaction(async (tx) => tx.prepare("INSERT INTO orders VALUES (?)"));
    const refused = expect.objectContaining({ code: "not-a-transaction" });
    await store.transaction(async () => expect(() => insert.run("late")).toThrow(refused));
    expect(() => insert.run("late")).toThrow(refused);
    expect(orders()).toEqual([]);
  });

  it("that SQLite has rolled back by itself does not commit what comes after", async () => {
    const { store, database, orders } = await shop();
    database.exec("INSERT INTO orders VALUES ('a')");
    const work = store.transaction(async (tx) => {
      try {
        tx.exec("INSERT OR ROLLBACK INTO orders VALUES ('a')");
      } catch {
        // Swallowed, as careless code does.
      }
      tx.exec("INSERT INTO orders VALUES ('b')");
    });
    await expect(work).rejects.toMatchObject({ code: "commit-rolled-back" });
    expect(orders()).toEqual(["a"]);
  });

  it("waits for a writer of another connection without blocking, and reports one that never ends", async () => {
    const { store, database, orders } = await shop({ lockTimeoutMs: 300 });
    database.exec("BEGIN IMMEDIATE");
    const waiting = store.transaction(async (tx) => void tx.exec("INSERT INTO orders VALUES ('late')"));
    setTimeout(() => database.exec("COMMIT"), 50);
    await waiting;
    expect(orders()).toEqual(["late"]);
    database.exec("BEGIN IMMEDIATE");
    const failed = await store.transaction(async () => {}).catch((error) => error);
    database.exec("ROLLBACK");
    expect(failed).toMatchObject({ code: "store-unavailable", message: expect.stringContaining("locked") });
    expect(store.isUnavailable(failed)).toBe(true);
  });
});

it("a list shows each message once, though it moves meanwhile", async () => {
  const { store, database, place } = await shop();
  place("a", false);
  const to = (status: string) => database.prepare("UPDATE postbox_message SET status = ?").run(status);
  for (let steps = 0; steps < 12; steps++) {
    to(steps % 2 === 0 ? "pending" : "parked");
    const listing = store.admin.list();
    for (let step = 0; step < steps; step++) await undefined;
    to(steps % 2 === 0 ? "parked" : "pending");
    expect((await listing).messages).toHaveLength(1);
  }
});

describe("the file", () => {
  it("is refused if no second connection can share it", () => {
    expect(() => sqliteStore({ open: () => new Database(":memory:") })).toThrow(
      expect.objectContaining({ code: "option-invalid", path: "open" }),
    );
    let opened = 0;
    const another = () => open(`${opened++}.db`);
    expect(() => sqliteStore({ open: another })).toThrow(expect.objectContaining({ code: "option-invalid" }));
  });

  it("without tables is reported, and gets them from migrationSql(), twice if need be", async () => {
    const store = sqliteStore({ open: () => open() });
    expect(await store.health()).toMatchObject({ healthy: false, problems: [{ code: "schema-missing" }] });
    await expect(store.box("outbox").read([])).rejects.toMatchObject({ code: "schema-missing" });
    await expect(store.transaction((tx) => store.append(tx, "outbox", []))).rejects.toMatchObject({
      code: "schema-missing",
    });
    const own = open();
    own.exec("PRAGMA journal_mode = WAL");
    for (let times = 0; times < 2; times++) own.exec(`BEGIN; ${migrationSql()} COMMIT`);
    expect(await store.health()).toEqual({ healthy: true, problems: [] });
  });

  it("that is closed answers store-closed", async () => {
    const { store } = await shop();
    store.close();
    await expect(store.box("outbox").read([])).rejects.toMatchObject({ code: "store-closed" });
    await expect(store.transaction(async () => {})).rejects.toMatchObject({ code: "store-closed" });
  });
});

it("no statement searches a table without an index", async () => {
  const { database } = await shop();
  const seen = new Set<string>();
  const spying = () => {
    const connection = open();
    return new Proxy(connection, {
      get(target, name) {
        if (name === "prepare") {
          return (sql: string) => {
            seen.add(sql);
            return target.prepare(sql);
          };
        }
        const value = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  };
  const watched = sqliteStore({ open: spying });
  await useEveryVerb(watched);
  expect(seen.size).toBeGreaterThan(50);
  const plans = [...seen].flatMap((sql) => {
    if (!/^\s*(SELECT|INSERT|UPDATE|DELETE)/.test(sql)) return [];
    const plan = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { detail: string }[];
    // The few boxes, and the lists in a parameter, are read as a whole.
    const scans = plan.filter(({ detail }) =>
      /^SCAN (?!json_each|postbox_box|CONSTANT|\(subquery|picked|sqlite_)/.test(detail),
    );
    return scans.map(({ detail }) => `${detail} in ${sql.replace(/\s+/g, " ")}`);
  });
  expect(plans).toEqual([]);
});

/** Calls every verb of a store at least once, with rows in every status. */
async function useEveryVerb(store: SqliteStore): Promise<void> {
  const box = store.box("outbox");
  const later = new Date(Date.now() + 3_600_000);
  const messages = [
    ...testMessages("m", 8, { key: "k" }),
    testMessage("due", { deliverAt: new Date(Date.now() - 1) }),
    testMessage("later", { deliverAt: later }),
    testMessage("replaced", { deliverAt: later, scheduleKey: "s" }),
  ];
  await store.transaction(async (tx) => {
    await store.append(tx, "outbox", messages);
    await store.cancel(tx, "outbox", messages[0]?.type ?? "", "s");
    await store.tick(tx, "nightly");
    await store.tick(tx, "nightly", { after: 0, tick: 1 });
  });
  await box.renew("relay", 60_000, "key");
  const lanes = await box.own("relay", 64);
  const from = lanes.map(({ lane }) => ({ lane, after: 0, limit: 100 }));
  const { rows } = await box.read(from);
  await box.late(
    from.map(({ lane }) => ({ lane, after: 0, upTo: 5, known: [1] })),
    10,
  );
  await box.promote(10);
  await box.suspect(lanes, rows);
  const failed = { attempts: 1, error: "not now" } as const;
  const how = [
    { to: "sent" },
    { to: "dropped", reason: "expired" },
    { to: "wait", retryInMs: 0, ...failed },
    { to: "wait", attempts: 0 },
    { to: "parked", hold: true, ...failed },
    { to: "parked", ...failed },
    { to: "pending", ...failed },
  ] as const;
  await box.settle(
    lanes,
    rows.flatMap((row, at) => (how[at] ? [{ row, ...how[at] }] : [])),
    { keep: true },
  );
  const due = await box.due(from);
  await box.settle(
    lanes,
    due.map((row) => ({ row, to: "sent" })),
    {},
  );
  await box.release("relay");
  await useInbox(store);
  await useAdmin(store);
  await store.purge({ retentionMs: 0, archive: async () => {} });
  await store.purge({ retentionMs: 0, box: "inbox/billing" });
}

async function useInbox(store: SqliteStore): Promise<void> {
  const options = { retentionMs: 60_000, lockTimeoutMs: 1_000 };
  const arrival = (id: string) => arrivalOf("billing", testMessage(id));
  await store.transaction((tx) => store.inbox.remember(tx, arrival("a"), options));
  await store.inbox.keep([arrival("b")], options);
  await store.inbox.setAside(arrival("c"), { to: "wait", attempts: 1, retryInMs: 0, error: "not now" }, options);
  const box = store.box("inbox/billing");
  await box.renew("router", 60_000, "key");
  const lanes = await box.own("router", 64);
  const { rows } = await box.read(lanes.map(({ lane }) => ({ lane, limit: 10 })));
  const [row] = rows;
  if (row === undefined) throw new Error("nothing was stored");
  const epoch = lanes.find(({ lane }) => lane === row.lane)?.epoch ?? 0;
  await store.transaction((tx) => store.inbox.handled(tx, arrival(row.message.id), row, epoch));
}

async function useAdmin({ admin, health }: SqliteStore): Promise<void> {
  const by = { by: "ann" };
  const filter = { type: "t", topic: "t", key: "k", source: "/s", correlationId: "c", error: "not", minAttempts: 0 };
  const created = { createdFrom: new Date(0), createdBefore: new Date() };
  for (const box of ["outbox", "inbox/billing"]) {
    await admin.stats({ box, done: true });
    await admin.list({ box, status: ["pending", "waiting", "scheduled", "parked", "done"] });
    await admin.list({ box, ...filter, ...created });
    await admin.get("m-0", { box });
    await admin.audit({ box });
  }
  await admin.audit();
  for (const action of ["retry", "discard", "replay"] as const) {
    const { confirm } = await admin.dryRun(action as "discard", {});
    const change: Admin["discard"] = admin[action];
    await change({}, { ...by, confirm });
    const ids = ["m-0", "m-1", "m-2", "m-3", "m-4", "m-5"];
    await change({ ids }, by);
  }
  for (const status of ["waiting", "pending"] as const) await admin.discard({ ids: ["m-3"], status }, by);
  await admin.retry({ ids: ["m-6"], status: "pending" }, by);
  await admin.release("k", by);
  await admin.pause(by);
  await admin.resume(by);
  await health();
}
