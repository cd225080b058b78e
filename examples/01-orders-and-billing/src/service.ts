import type { ClientBase, Pool } from "pg";
import type { Store } from "postbox";
import { type ConnectedStore, connectStore } from "postbox/connect";

/** A service's own database: its tables in one schema, Postbox's in another. */
export interface Database {
  readonly store: Store<ClientBase>;
  readonly pool: Pool;
  readonly schema: string;
  /** Messages that are still in the outbox, and those that were set aside. */
  outbox(): Promise<{ waiting: number; parked: number }>;
  count(query: string): Promise<number>;
  close(): Promise<void>;
}

/** Connects, and starts anew: whatever an earlier run left in these two schemas is dropped. */
export async function openDatabase(url: string, name: string, tables: string): Promise<Database> {
  const schema = `demo_${name}`;
  const boxes = `demo_${name}_postbox`;
  const connected: ConnectedStore = await connectStore(url, { schema: boxes });
  if (connected.kind !== "postgres") throw new Error("this demo needs postgres://… or pglite:");
  const { store, pool, close } = connected;
  await pool.query(`drop schema if exists ${schema} cascade; drop schema if exists ${boxes} cascade`);
  await pool.query(`create schema ${schema}`);
  await pool.query(tables.replaceAll("$schema", schema));
  await store.migrate();
  const count = async (query: string) => Number((await pool.query(query)).rows[0].count);
  return {
    store,
    pool,
    schema,
    count,
    async outbox() {
      const [pending, wait, parked] = [
        await count(`select count(*) from ${boxes}.outbox_pending`),
        await count(`select count(*) from ${boxes}.outbox_wait`),
        await count(`select count(*) from ${boxes}.outbox_parked`),
      ];
      return { waiting: pending + wait, parked };
    },
    close,
  };
}
