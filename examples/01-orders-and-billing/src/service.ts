import type { ClientBase, Pool } from "pg";
import type { Store } from "postbox";
import { type ConnectedStore, connectStore } from "postbox/connect";

/** The database of one service: its own tables in one schema, Postbox's tables in another. */
export interface Database {
  readonly store: Store<ClientBase>;
  readonly pool: Pool;
  readonly schema: string;
  /** Runs a query and returns its rows. `$own` and `$postbox` in the query stand for the two schemas. */
  rows<Row extends object>(query: string): Promise<Row[]>;
  close(): Promise<void>;
}

/** Connects, drops both schemas of an earlier run, and creates them anew. */
export async function openDatabase(url: string, name: string, tables: string): Promise<Database> {
  const schema = `demo_${name}`;
  const boxes = `demo_${name}_postbox`;
  const connected: ConnectedStore = await connectStore(url, { schema: boxes });
  if (connected.kind !== "postgres") throw new Error("this demo needs postgres://… or pglite:");
  const { store, pool, close } = connected;
  const rows = async <Row extends object>(query: string) =>
    (await pool.query<Row>(query.replaceAll("$own", schema).replaceAll("$postbox", boxes))).rows;
  await rows("drop schema if exists $own cascade; drop schema if exists $postbox cascade; create schema $own");
  await rows(tables);
  await store.migrate();
  return { store, pool, schema, rows, close };
}
