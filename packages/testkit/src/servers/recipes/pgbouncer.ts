import { spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { chown, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { unprivilegedAccount } from "../postgres-programs.js";
import type { Recipe } from "../recipe.js";
import { postgresVersion } from "../services/postgres.js";

// Debian installs it there, which is not on every user's path.
const program = ["/usr/sbin/pgbouncer"].find((path) => existsSync(path)) ?? "pgbouncer";

export function isPgbouncerInstalled(): boolean {
  return spawnSync(program, ["--version"], { stdio: "ignore" }).status === 0;
}

/**
 * A PgBouncer of this machine that connects to the PostgreSQL at `upstream`, in transaction mode, with its user and
 * password.
 */
export function pgbouncer(upstream: string): Recipe {
  return {
    prepare: async (folder) => {
      const { hostname, port: upstreamPort, username, password } = new URL(upstream);
      const [settings, users] = [join(folder.path, "pgbouncer.ini"), join(folder.path, "users")];
      await writeFile(users, `"${username}" "${password}"\n`, { mode: 0o600 });
      await writeFile(settings, "");
      // It refuses to run as root, too.
      const account = unprivilegedAccount();
      if (account) for (const path of [folder.path, users, settings]) await chown(path, account.uid, account.gid);

      return {
        command: (port) => {
          writeFileSync(
            settings,
            `[databases]
            * = host=${hostname} port=${upstreamPort}
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = ${port}
            unix_socket_dir =
            auth_type = scram-sha-256
            auth_file = ${users}
            pool_mode = transaction
            default_pool_size = 40
            max_client_conn = 1000
            # After a failed login it would wait longer than a restart of the server takes.
            server_login_retry = 0.1
            `.replaceAll(/^ +/gm, ""),
          );
          // On SIGTERM, newer versions wait for their clients to disconnect.
          return { file: program, args: [settings], account, stopSignal: "SIGQUIT" };
        },
        url: (port) => upstream.replace(`:${upstreamPort}/`, `:${port}/`),
        probe: postgresVersion,
      };
    },
  };
}
