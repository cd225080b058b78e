import pg from "pg";
import type { Service } from "../service.js";

/** One that is there and busy with other tests may be slow; one that is not there says so at once. */
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

/** Lends `work` a connection that waits for nothing longer than a few seconds. */
export async function withClient<R>(url: string, work: (client: pg.Client) => Promise<R>): Promise<R> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: timeoutMs, query_timeout: timeoutMs });
  // A server that goes away between two steps must reject the step, not end the process.
  client.on("error", () => {});
  try {
    await client.connect();
    return await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}
