import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import Database from "libsql";
import { sqliteStore } from "postbox/sqlite";
import { afterEach, expect, it } from "vitest";

/** `POSTBOX_TORTURE_MS` makes it longer. */
const placingMs = Number(process.env.POSTBOX_TORTURE_MS ?? 3_000);
const program = fileURLToPath(new URL("../dist/sqlite/shop.js", import.meta.url));
const children = new Set<ChildProcess>();
const folders: string[] = [];

afterEach(() => {
  for (const child of children) child.kill("SIGKILL");
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

it("processes share one file: nothing is lost, doubled or out of order, and none sees that it is busy", async () => {
  const file = await emptyShop();
  const shops = ["a", "b", "c", "d"].map((name) => shop(file, name));
  for (const [problems] of await Promise.all(shops.map((child) => once(child, "message"))))
    expect(problems).toEqual([]);
  await until(() => unsent(file) === 0);
  await Promise.all(shops.map(end));
  expectEachOnce(file);
});

it("a process that is killed loses nothing, and its messages are handled by the others", async () => {
  const file = await emptyShop();
  const steady = shop(file, "steady");
  const placed = once(steady, "message");
  for (let life = 0; life < 4; life++) {
    const mortal = shop(file, `mortal${life}`);
    await pause(placingMs / 4);
    mortal.kill("SIGKILL");
    await once(mortal, "exit");
  }
  await placed;
  await until(() => unsent(file) === 0);
  await end(steady);
  expectEachOnce(file);
});

async function emptyShop(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "postbox-sqlite-"));
  folders.push(folder);
  const file = join(folder, "shop.db");
  const store = sqliteStore({ open: () => new Database(file) });
  await store.migrate();
  store.close();
  inFile(file, (database) => {
    database.exec("CREATE TABLE orders (id TEXT PRIMARY KEY)");
    database.exec("CREATE TABLE invoices (place INTEGER PRIMARY KEY, id TEXT, customer TEXT, number INTEGER)");
  });
  return file;
}

function shop(file: string, name: string): ChildProcess {
  const child = fork(program, [file, name, String(placingMs)], { execArgv: [], stdio: ["ignore", 2, 2, "ipc"] });
  children.add(child);
  child.once("exit", () => children.delete(child));
  return child;
}

/** Tells a process to stop in order. It must then exit by itself. */
async function end(child: ChildProcess): Promise<void> {
  const exited = once(child, "exit");
  child.send("stop");
  expect(await exited).toEqual([0, null]);
}

function inFile<R>(file: string, read: (database: Database.Database) => R): R {
  const database = new Database(file, { timeout: 5_000 });
  try {
    return read(database);
  } finally {
    database.close();
  }
}

function rows<R>(file: string, sql: string): R[] {
  return inFile(file, (database) => database.prepare(sql).all() as R[]);
}

function unsent(file: string): number {
  return rows<{ count: number }>(file, "SELECT count(*) AS count FROM postbox_message")[0]?.count ?? 0;
}

function expectEachOnce(file: string): void {
  const orders = rows<{ id: string }>(file, "SELECT id FROM orders ORDER BY id").map(({ id }) => id);
  const invoices = rows<{ id: string; customer: string; number: number }>(
    file,
    "SELECT * FROM invoices ORDER BY place",
  );
  expect(invoices.map(({ id }) => id).sort()).toEqual(orders.sort());
  expect(orders.length).toBeGreaterThan(50);
  const last = new Map<string, number>();
  for (const { customer, number } of invoices) {
    expect(number).toBeGreaterThan(last.get(customer) ?? -1);
    last.set(customer, number);
  }
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error("not within 60 s");
    await pause(50);
  }
}
