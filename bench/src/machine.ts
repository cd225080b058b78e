import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { cpus, loadavg, totalmem } from "node:os";
import pg from "pg";
import { serverUrl } from "./database.js";

/** The machine, versions and settings that the figures depend on, one line each. */
export async function machineFacts(): Promise<readonly string[]> {
  const client = new pg.Client({ connectionString: serverUrl });
  await client.connect();
  try {
    const { rows } = await client.query(
      `SELECT name, current_setting(name) AS value FROM pg_settings
       WHERE name IN ('server_version', 'shared_buffers', 'max_wal_size', 'autovacuum', 'wal_level') ORDER BY name`,
    );
    const settings = Object.fromEntries(rows.map(({ name, value }) => [name, value]));
    const memory = Math.round(totalmem() / 2 ** 30);
    return [
      `${cpus().length} cores (${cpus()[0]?.model.trim()}), ${memory} GB, load ${loadavg().map(rounded).join(" ")}`,
      `Node.js ${process.version}, pg ${driverVersion()}`,
      `PostgreSQL ${settings.server_version}: fsync and synchronous_commit on, shared_buffers ` +
        `${settings.shared_buffers}, ` +
        `max_wal_size ${settings.max_wal_size}, autovacuum ${settings.autovacuum}, wal_level ${settings.wal_level}`,
    ];
  } finally {
    await client.end();
  }
}

function driverVersion(): string {
  return JSON.parse(readFileSync(createRequire(import.meta.url).resolve("pg/package.json"), "utf8")).version;
}

function rounded(load: number): string {
  return load.toFixed(1);
}
