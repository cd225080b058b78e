import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  crashSuite,
  inboxSuite,
  relaySuite,
  type StoreFeatures,
  type StoreHarness,
  storeSuite,
} from "@postbox/testkit/suites";
import Database from "libsql";
import { type SqliteDatabase, type SqliteTransaction, sqliteStore } from "postbox/sqlite";

const features: StoreFeatures = {
  // SQLite has one writer at a time.
  concurrentTransactions: false,
  lateCommits: false,
  migrations: true,
  isolationLevels: true,
  abortsOnError: false,
  foreignTransactions: true,
  processes: true,
};

const tables = ["version", "box", "message", "hold", "handled", "schedule", "audit"];

type Open = (file: string) => SqliteDatabase;

async function harness(openFile: Open): Promise<StoreHarness<SqliteTransaction>> {
  const folder = mkdtempSync(join(tmpdir(), "postbox-sqlite-"));
  const file = join(folder, "store.db");
  const open = () => openFile(file);
  let aheadMs = 0;
  const runtime = { now: () => Date.now() + aheadMs };
  const stores: ReturnType<typeof make>[] = [];
  const make = () => sqliteStore({ open, runtime });
  const another = () => {
    const store = make();
    stores.push(store);
    return store;
  };
  const store = another();
  await store.migrate();
  const outside = open();
  outside.exec("CREATE TABLE effect (name TEXT)");
  await store.box("inbox/other").release("nobody");
  const all = <R>(sql: string, ...params: unknown[]) => outside.prepare(sql).all(...params) as R[];
  const ids = (box: string, status: string) =>
    all<{ id: string }>(
      `SELECT id FROM postbox_message WHERE box = (SELECT number FROM postbox_box WHERE name = ?) AND status = ?
       ORDER BY position`,
      box,
      status,
    ).map(({ id }) => id);
  return {
    store,
    another,
    effect: async (tx, name) => void tx.prepare("INSERT INTO effect VALUES (?)").run(name),
    effects: async () => all<{ name: string }>("SELECT name FROM effect").map(({ name }) => name),
    async advance(ms) {
      aheadMs += ms;
    },
    now: () => Date.now() + aheadMs,
    async contents(box) {
      const inBox = "box = (SELECT number FROM postbox_box WHERE name = ?)";
      const handled = all<{ id: string }>(
        `SELECT id FROM postbox_handled WHERE ${inBox} AND handled_at IS NOT NULL ORDER BY number`,
        box,
      );
      return {
        pending: ids(box, "pending"),
        wait: ids(box, "waiting"),
        holds: all<{ name: string }>(`SELECT name FROM postbox_hold WHERE ${inBox}`, box)
          .map(({ name }) => (name.startsWith("\u0001") ? name.slice(1) : name))
          .sort(),
        scheduled: ids(box, "scheduled"),
        parked: all<{ id: string; error: string }>(
          `SELECT id, last_error AS error FROM postbox_message WHERE ${inBox} AND status = 'parked' ORDER BY position`,
          box,
        ).map(({ id, error }) => ({ id, error })),
        done: box === "outbox" ? ids(box, "done") : handled.map(({ id }) => id),
      };
    },
    async fingerprint() {
      const hash = createHash("sha256");
      for (const table of tables) {
        for (const row of all<object>(`SELECT * FROM postbox_${table} ORDER BY 1, 2`))
          hash.update(JSON.stringify(Object.values(row).map(textOf)));
      }
      return hash.digest("hex");
    },
    async process() {
      const another = make();
      return { store: another, kill: async () => another.close() };
    },
    impostors: () => [outside, file, open],
    async close() {
      outside.close();
      for (const each of stores) each.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function textOf(value: unknown): unknown {
  return value instanceof ArrayBuffer ? Buffer.from(value).toString("base64") : value;
}

/** `node:sqlite` is there from Node.js 22 on. */
async function drivers(): Promise<readonly (readonly [name: string, open: Open])[]> {
  const own = await import("node:sqlite" as string).catch(() => undefined);
  return [
    ["libsql", (file) => new Database(file)],
    ...(own === undefined ? [] : [["node:sqlite", (file: string) => new own.DatabaseSync(file)] as const]),
  ];
}

for (const [driver, open] of await drivers()) {
  const sqlite = { name: `sqlite on ${driver}`, features, create: () => harness(open) };
  storeSuite(sqlite);
  relaySuite(sqlite);
  inboxSuite(sqlite);
  crashSuite(sqlite);
}
