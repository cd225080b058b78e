import pg from "pg";
import type { Ending } from "./ending.js";

/** The database of this run. */
export interface Database {
  readonly url: string;
  /** Opens a pool that is closed when the run ends. */
  pool(max: number): pg.Pool;
}

export const serverUrl = process.env.POSTBOX_TEST_POSTGRES_URL ?? "postgres://postgres@127.0.0.1:5432/postgres";

/** Creates the database, which is dropped when the run ends. Throws if a durability setting of the server is off. */
export async function createDatabase(ending: Ending): Promise<Database> {
  const server = new pg.Pool({ connectionString: serverUrl, max: 1 });
  server.on("error", ignore);
  ending.add(() => server.end());
  await requireDurability(server);

  const name = `postbox_bench_${process.pid}`;
  await server.query(`CREATE DATABASE "${name}"`);
  ending.add(async () => {
    await server.query(`DROP DATABASE IF EXISTS "${name}" WITH (FORCE)`);
  });
  const url = new URL(serverUrl);
  url.pathname = name;
  return {
    url: url.href,
    pool(max) {
      const pool = new pg.Pool({ connectionString: url.href, max });
      // After Ctrl-C, dropping the database cuts connections that are still in use.
      pool.on("error", ignore);
      ending.add(() => void pool.end().catch(ignore));
      return pool;
    },
  };
}

async function requireDurability(server: pg.Pool): Promise<void> {
  for (const setting of ["fsync", "synchronous_commit", "full_page_writes"]) {
    const { rows } = await server.query("SELECT current_setting($1) AS value", [setting]);
    if (rows[0].value !== "on") {
      throw new Error(`${setting} is ${rows[0].value} on this server: figures without durability mean nothing`);
    }
  }
}

function ignore(): void {}
