import type { ClientBase, Pool } from "pg";
import type { Store } from "postbox";
import { type ConnectedStore, connectStore } from "postbox/connect";

/** A service's own database: its tables in one schema, Postbox's in another. */
export interface Database {
  readonly store: Store<ClientBase>;
  readonly pool: Pool;
  readonly schema: string;
  /** The rows of a query, in which `$own` and `$postbox` stand for the two schemas. */
  rows<Row extends object>(query: string): Promise<Row[]>;
  close(): Promise<void>;
}

/** Connects, and starts anew: whatever an earlier run left in these two schemas is dropped. */
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
