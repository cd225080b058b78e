import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createConnection } from "mysql2/promise";
import type { ClientBase } from "pg";
import type { Store } from "postbox";
import { connectStore } from "postbox/connect";

type Row = Record<string, unknown>;
/** A connection, or a transaction on one, as the services use it. */
type Run = (query: string, params?: readonly (string | number)[]) => Promise<Row[]>;

/** The database of one service: its own tables, and Postbox's tables beside them. */
export interface Database<Tx = unknown> {
  readonly store: Store<Tx>;
  /** Runs a query in a transaction. `$own` in the query stands for the service's own schema, `$n` for a parameter. */
  in(tx: Tx): Run;
  /** Runs a query outside of transactions. */
  readonly run: Run;
  close(): Promise<void>;
}

/** Connects, drops everything of an earlier run, and creates the tables. `$id` stands for a column of generated ids. */
export async function openDatabase(url: string, name: string, tables: readonly string[]): Promise<Database> {
  const database = await openerOf(url)(url, name);
  for (const table of tables) await database.run(table);
  await database.store.migrate();
  return database as Database;
}

function openerOf(url: string) {
  if (url.startsWith("sqlite:")) return openSqlite;
  return /^(?:mysql|mariadb):/.test(url) ? openMysql : openPostgres;
}

async function openPostgres(url: string, name: string) {
  const schema = `demo_${name}`;
  const boxes = `demo_${name}_postbox`;
  const connected = await connectStore(url, { schema: boxes });
  if (connected.kind !== "postgres") throw new Error("this demo needs postgres://…, pglite:, mysql://… or sqlite:");
  const { store, pool, close } = connected;
  const on =
    (client: Pick<ClientBase, "query">): Run =>
    async (query, params = []) => {
      const text = query.replaceAll("$own", schema).replace("$id", "int generated always as identity");
      return (await client.query<Row>(text, [...params])).rows;
    };
  const run = on(pool);
  for (const each of [schema, boxes]) await pool.query(`drop schema if exists ${each} cascade`);
  await run("create schema $own");
  return { store, in: on, run, close };
}

/** A database for each service, on the server of the URL. */
async function openMysql(url: string, name: string) {
  const own = new URL(url);
  own.pathname = `/demo_${name}`;
  const admin = await createConnection(new URL("/", url.replace(/^mariadb:/, "mysql:")).href);
  await admin.query(`DROP DATABASE IF EXISTS demo_${name}`);
  await admin.query(`CREATE DATABASE demo_${name}`);
  await admin.end();
  const connected = await connectStore(own.href);
  if (connected.kind !== "mysql") throw new Error(`${url} is not a server of MySQL`);
  const { store, pool, close } = connected;
  type Queries = Pick<typeof pool, "query">;
  const on =
    (queries: Queries): Run =>
    async (query, params = []) => {
      const text = query
        .replaceAll("$own.", "")
        .replace("$id", "int auto_increment primary key")
        .replace(/\btext\b/g, "varchar(255)")
        .replace(/\$\d/g, "?");
      // MySQL has no RETURNING. It tells the generated id of an insert.
      const [, statement = text, column] = /^(.*) returning (\w+)$/.exec(text) ?? [];
      const [rows] = await queries.query(statement, [...params]);
      if (Array.isArray(rows)) return rows as Row[];
      return column === undefined ? [] : [{ [column]: rows.insertId }];
    };
  return { store, in: on, run: on(pool), close };
}

/** A folder, with a file for each service. */
async function openSqlite(url: string, name: string) {
  const folder = url.replace(/^sqlite:(\/\/)?/, "") || ".";
  const file = join(folder, `demo_${name}.db`);
  mkdirSync(folder, { recursive: true });
  for (const ending of ["", "-wal", "-shm"]) rmSync(`${file}${ending}`, { force: true });
  const connected = await connectStore(`sqlite:${file}`);
  if (connected.kind !== "sqlite") throw new Error(`${file} is not a file of SQLite`);
  const { store, close } = connected;
  type Queries = Parameters<Parameters<typeof store.transaction>[0]>[0];
  const on =
    (tx: Queries): Run =>
    async (query, params = []) => {
      const text = query
        .replaceAll("$own.", "")
        .replace("$id", "integer primary key")
        .replace(/\$(\d)/g, "?$1");
      const statement = tx.prepare(text);
      if (/^\s*select|returning/i.test(text)) return statement.all(...params);
      statement.run(...params);
      return [];
    };
  const run: Run = (query, params) => store.transaction((tx) => on(tx)(query, params));
  return { store, in: on, run, close };
}
