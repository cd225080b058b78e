import { existsSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type DisposableServer, disposable } from "./disposable.js";

/** Runs each query on a new connection, since connections do not outlive the server. */
async function query<Row extends object>(text: string): Promise<Row[]> {
  const client = new pg.Client(server.url);
  await client.connect();
  try {
    return (await client.query<Row>(text)).rows;
  } finally {
    await client.end();
  }
}

let server: DisposableServer;
beforeAll(async () => {
  server = await disposable("postgres");
});
afterAll(() => server?.stop());

test("starts a real server on loopback, with a password", async () => {
  const [row] = await query<{ version: string; address: string }>(
    "select version(), current_setting('listen_addresses') as address",
  );
  expect(row?.version).toMatch(/^PostgreSQL 18/);
  expect(row?.address).toBe("127.0.0.1");
  const stranger = new pg.Client(server.url.replace(/:[0-9a-f]+@/, ":wrong@"));
  await expect(stranger.connect()).rejects.toThrow("password");
});

test("keeps what was committed through a kill and a restart", async () => {
  await query("create table survivors as select 7 as n");
  const { pid, url } = server;
  await server.kill();
  expect(isAlive(pid)).toBe(false);
  await expect(query("select")).rejects.toThrow("ECONNREFUSED");
  expect(() => server.pid).toThrow("does not run");

  await server.restart();
  expect(server.url).toBe(url);
  expect(server.pid).not.toBe(pid);
  expect(await query("select n from survivors")).toEqual([{ n: 7 }]);
});

test("restarts a running server in good order", async () => {
  const { pid } = server;
  await server.restart();
  expect(isAlive(pid)).toBe(false);
  expect(await query("select n from survivors")).toEqual([{ n: 7 }]);
});

test("stays away after a halt, in good order or not, until it is restarted", async () => {
  for (const signal of [undefined, "SIGQUIT"] as const) {
    const { pid } = server;
    await server.halt(signal);
    expect(isAlive(pid)).toBe(false);
    await expect(query("select")).rejects.toThrow("ECONNREFUSED");
    await server.restart();
    expect(await query("select n from survivors")).toEqual([{ n: 7 }]);
  }
});

test("notices that somebody else killed the server", async () => {
  process.kill(server.pid, "SIGKILL");
  await expect.poll(() => isRunning(server)).toBe(false);
  await server.restart();
  expect(await query("select n from survivors")).toEqual([{ n: 7 }]);
});

test("survives 10 kills in a row while clients are connected", async () => {
  for (let round = 0; round < 10; round++) {
    const client = new pg.Client(server.url);
    client.on("error", () => {});
    await client.connect();
    await server.kill();
    await server.restart();
    await client.end().catch(() => {});
  }
  expect(await query("select n from survivors")).toEqual([{ n: 7 }]);
});

test("leaves no process and no folder behind, running or killed", async () => {
  for (const killed of [false, true]) {
    const other = await disposable("postgres");
    const { pid } = other;
    const folder = await dataFolderOf(other);
    expect(existsSync(folder)).toBe(true);
    if (killed) await other.kill();
    await other.stop();
    await other.stop();
    expect(isAlive(pid)).toBe(false);
    expect(existsSync(folder)).toBe(false);
  }
});

async function dataFolderOf({ url }: DisposableServer): Promise<string> {
  const client = new pg.Client(url);
  await client.connect();
  const { rows } = await client.query("show data_directory");
  await client.end();
  return rows[0].data_directory;
}

function isRunning(candidate: DisposableServer): boolean {
  try {
    return isAlive(candidate.pid);
  } catch {
    return false;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
