import pg from "pg";
import type { Ending } from "./ending.js";

/** A database of the run's own. */
export interface Database {
  readonly url: string;
  /** A pool that ends with the run. */
  pool(max: number): pg.Pool;
}

export const serverUrl = process.env.POSTBOX_TEST_POSTGRES_URL ?? "postgres://postgres@127.0.0.1:5432/postgres";

/** Creates the database, to be dropped at the end. Refuses a server that does not write what it confirms. */
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
      // Connections are cut when the database is dropped in the middle of the work, on Ctrl-C.
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
