import type pg from "pg";
import { inboxOf } from "postbox";
import { type PostgresStore, postgresStore } from "postbox/postgres";
import { emptyBusiness } from "../business.js";
import type { Run } from "../part.js";
import { consumer } from "./routers.js";

/** A schema with the store's own tables. One side of a comparison uses them through the library, the other by hand. */
export interface InboxSchema {
  readonly name: string;
  readonly pool: pg.Pool;
  readonly store: PostgresStore<pg.ClientBase>;
  /** The table of handled messages. */
  readonly memory: string;
  /**
   * Runs before each side: empties the tables and makes a checkpoint. With `keepMemory`, the inbox keeps what it
   * remembers.
   */
  empty(options?: { readonly keepMemory?: boolean }): Promise<void>;
  /** The number of messages in the boxes of all consumers. */
  left(): Promise<number>;
}

/** Ten concurrent handlers, and connections for the inbox itself. */
const connections = 16;

/** Returns a schema of the run. Benchmarks that pass the same name share its tables. */
export function inboxSchemaOf(run: Run, name: "inbox" | "remembered"): Promise<InboxSchema> {
  return run.once(`inbox schema ${name}`, async () => {
    const schema = `postbox_${name}`;
    const pool = run.database.pool(connections);
    const store = postgresStore({ pool, schema });
    await store.migrate();
    await emptyBusiness(pool);
    // Registers the consumer, as its first run would.
    await store.box(inboxOf(consumer)).read([]);
    const memory = `"${schema}".inbox_message`;
    const boxes = ["pending", "wait", "hold", "parked"].map((part) => `"${schema}".inbox_${part}`);
    return {
      name: schema,
      pool,
      store,
      memory,
      async empty({ keepMemory = false } = {}) {
        const all = [...boxes, `"${schema}".outbox_pending`, ...(keepMemory ? [] : [memory])];
        await pool.query(`TRUNCATE ${all.join(", ")}`);
        await emptyBusiness(pool);
        // After a checkpoint, PostgreSQL logs the full page on its first change. Both sides pay this alike.
        await pool.query("CHECKPOINT");
      },
      async left() {
        const [pending, wait, , parked] = boxes.map((table) => `(SELECT count(*) FROM ${table})`);
        const { rows } = await pool.query(`SELECT ${pending} + ${wait} + ${parked} AS left`);
        return Number(rows[0].left);
      },
    };
  });
}
