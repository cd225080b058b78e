import type { Service } from "../service.js";
import { postgresVersion, withClient } from "./postgres.js";

/** Connects to the PostgreSQL that tests use, in transaction mode: two statements in a row may run in two sessions. */
export const pgbouncer: Service = {
  name: "pgbouncer",
  title: "PgBouncer",
  defaultUrl: "postgres://postgres:postgres@127.0.0.1:6432/postgres",
  variable: "POSTBOX_TEST_PGBOUNCER_URL",
  probe: pgbouncerVersion,
  debian: {
    package: "pgbouncer",
    // The package's own configuration binds to loopback and has no database. Ours is written after the installation, or
    // dpkg would ask which to keep.
    configuration: {},
    start: "service pgbouncer start",
    afterInstallation: `
      printf '%s\\n' '"postgres" "postgres"' > /etc/pgbouncer/userlist.txt
      printf '%s\\n' '[databases]' '* = host=127.0.0.1 port=5432' '[pgbouncer]' \\
        'listen_addr = 127.0.0.1' 'listen_port = 6432' 'unix_socket_dir =' \\
        'logfile = /var/log/postgresql/pgbouncer.log' 'pidfile = /var/run/postgresql/pgbouncer.pid' \\
        'auth_type = scram-sha-256' 'auth_file = /etc/pgbouncer/userlist.txt' 'admin_users = postgres' \\
        'pool_mode = transaction' 'default_pool_size = 40' 'max_client_conn = 1000' \\
        'server_idle_timeout = 5' > /etc/pgbouncer/pgbouncer.ini
      service pgbouncer stop
      service pgbouncer start`,
  },
};

/**
 * Asks the pooler at `url` for its version, and the server behind it for an answer, since tests need both. Rejects a
 * pooler in session mode, on which tests would prove nothing.
 */
async function pgbouncerVersion(url: string): Promise<string> {
  await postgresVersion(url);
  const console = new URL(url);
  console.pathname = "/pgbouncer";
  return withClient(console.href, async (client) => {
    const { rows: settings } = await client.query<{ key: string; value: string }>("SHOW CONFIG");
    const mode = settings.find(({ key }) => key === "pool_mode")?.value;
    if (mode !== "transaction") throw new Error(`its pool_mode is ${mode}, not transaction`);
    const { rows } = await client.query<{ version: string }>("SHOW VERSION");
    return rows[0]?.version.split(" ")[1] ?? "unknown";
  });
}
