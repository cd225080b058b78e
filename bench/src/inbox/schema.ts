import type pg from "pg";
import { inboxOf } from "postbox";
import { type PostgresStore, postgresStore } from "postbox/postgres";
import { emptyBusiness } from "../business.js";
import type { Run } from "../part.js";
import { consumer } from "./routers.js";

/** A schema with the store's own tables. By the same tables, one side works through the library and one by hand. */
export interface InboxSchema {
  readonly name: string;
  readonly pool: pg.Pool;
  readonly store: PostgresStore<pg.ClientBase>;
  /** The table of what was handled. */
  readonly memory: string;
  /** Before each side: removes everything, but for what is remembered if that is to stay, and makes a checkpoint. */
  empty(options?: { readonly keepMemory?: boolean }): Promise<void>;
  /** How many messages are in the boxes of consumers. */
  left(): Promise<number>;
}

/** Ten handlers at once, and what the inbox itself needs. */
const connections = 16;

/** Schemas of a run: benchmarks that name the same one share its tables. */
export function inboxSchemaOf(run: Run, name: "inbox" | "remembered"): Promise<InboxSchema> {
  return run.once(`inbox schema ${name}`, async () => {
    const schema = `postbox_${name}`;
    const pool = run.database.pool(connections);
    const store = postgresStore({ pool, schema });
    await store.migrate();
    await emptyBusiness(pool);
    // Makes the consumer known, as its first run ever would.
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
        // After a checkpoint, the first change of a page writes all of it: on both sides, or on none.
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
