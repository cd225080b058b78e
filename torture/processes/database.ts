import type { RestedBox } from "@postbox/testkit/history";
import pg from "pg";
import { postgresStore } from "postbox/postgres";
import type { EffectRow, Remains } from "./history-of.js";
import { consumersSchema, producersSchema } from "./part.js";

/** What a consumer has kept, and not handled. */
interface Kept {
  readonly id: string;
  readonly status: string;
  readonly error: string | null;
}

/** The tables of a run: the producers' own and the consumers' own, each beside the boxes of theirs. */
export interface RunTables {
  /**
   * How much there is: what the producers and the consumers wrote, and what is still in the boxes, except for what is
   * parked in an inbox.
   */
  counts(): Promise<Readonly<Record<"postings" | "effects" | "unsent" | "kept", number>>>;
  /** Ends the sessions of one process of this run. */
  terminate(name: string): Promise<void>;
  remains(): Promise<Remains & { readonly inbox: readonly Kept[] }>;
  remove(): Promise<void>;
}

export async function makeTables(url: string, run: string): Promise<RunTables> {
  const pool = new pg.Pool({ connectionString: url, max: 2, application_name: run });
  const [own, theirs] = [producersSchema(run), consumersSchema(run)];
  for (const schema of [own, theirs]) await postgresStore({ pool, schema }).migrate();
  await pool.query(`
    CREATE TABLE ${own}.posting (tx text PRIMARY KEY);
    CREATE TABLE ${theirs}.effect (
      seq bigserial PRIMARY KEY, consumer text NOT NULL, id text NOT NULL, key text NOT NULL, seen int NOT NULL);
    CREATE INDEX ON ${theirs}.effect (consumer, key)`);

  return {
    async counts() {
      const { rows } = await pool.query(`
        SELECT (SELECT count(*)::int FROM ${own}.posting) AS postings,
               (SELECT count(*)::int FROM ${theirs}.effect) AS effects,
               (SELECT count(*)::int FROM ${own}.outbox_messages WHERE status <> 'done') AS unsent,
               (SELECT count(*)::int FROM ${theirs}.inbox_messages WHERE status IN ('pending', 'waiting')) AS kept`);
      return rows[0];
    },
    async terminate(name) {
      await pool.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", [name]);
    },
    async remains() {
      const rowsOf = async <Row extends object>(text: string) => (await pool.query<Row>(text)).rows;
      const postings = await rowsOf<{ tx: string }>(`SELECT tx FROM ${own}.posting`);
      const effects = await rowsOf<EffectRow>(`SELECT consumer, id, key, seen FROM ${theirs}.effect ORDER BY seq`);
      const rest = await rowsOf<{ id: string; status: string }>(`SELECT id, status FROM ${own}.outbox_messages`);
      const having = (...status: string[]) => rest.filter((row) => status.includes(row.status)).map(({ id }) => id);
      const outbox: RestedBox = {
        pending: having("pending", "scheduled"),
        wait: having("waiting"),
        parked: having("parked"),
        done: having("done"),
      };
      const inbox = await rowsOf<Kept>(
        `SELECT id, status, last_error AS error FROM ${theirs}.inbox_messages WHERE status NOT IN ('done', 'processed')`,
      );
      return { committed: new Set(postings.map(({ tx }) => tx)), effects, outbox, inbox };
    },
    async remove() {
      await pool.query(`DROP SCHEMA ${own} CASCADE; DROP SCHEMA ${theirs} CASCADE`);
      await pool.end();
    },
  };
}
