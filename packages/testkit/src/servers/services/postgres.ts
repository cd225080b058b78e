import pg from "pg";
import type { Service } from "../service.js";

/** A server that is busy with other tests may be slow; a missing one fails at once. */
const timeoutMs = 10_000;

export const postgres: Service = {
  name: "postgres",
  title: "PostgreSQL",
  defaultUrl: "postgres://postgres:postgres@127.0.0.1:5432/postgres",
  variable: "POSTBOX_TEST_POSTGRES_URL",
  probe: postgresVersion,
  debian: {
    package: "postgresql",
    configuration: {},
    start: "service postgresql start",
    afterInstallation: `runuser -u postgres -- psql -qc "alter role postgres password 'postgres'"`,
  },
};

/** Asks the PostgreSQL server at `url` for its version. */
export function postgresVersion(url: string): Promise<string> {
  return withClient(url, async (client) => {
    const { rows } = await client.query<{ server_version: string }>("show server_version");
    return rows[0]?.server_version.split(" ")[0] ?? "unknown";
  });
}

/** Runs `work` with a connection whose calls time out after a few seconds. */
export async function withClient<R>(url: string, work: (client: pg.Client) => Promise<R>): Promise<R> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: timeoutMs, query_timeout: timeoutMs });
  // A connection that is lost between two steps must reject the next step, not end the process.
  client.on("error", () => {});
  try {
    await client.connect();
    return await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}
