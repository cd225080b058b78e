import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chown, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { postgresPrograms, unprivilegedAccount } from "../postgres-programs.js";
import type { Recipe } from "../recipe.js";
import { postgresVersion } from "../services/postgres.js";

const settings = [
  "listen_addresses=127.0.0.1",
  "unix_socket_directories=",
  "max_connections=200",
  // The data need not survive a power failure. They do survive a kill: a commit still reaches the operating system,
  // since synchronous_commit stays on.
  "fsync=off",
  "full_page_writes=off",
  // In the data folder, so that a killed server leaves nothing behind.
  "dynamic_shared_memory_type=mmap",
];

/** The real PostgreSQL that comes with npm. */
export const postgres: Recipe = {
  prepare: async (folder) => {
    const account = unprivilegedAccount();
    if (account) await chown(folder.path, account.uid, account.gid);
    const programs = await postgresPrograms(folder.path, account);
    const data = join(folder.path, "data");
    // Other users of this machine can reach the port, and a superuser of the database can run programs under our
    // account.
    const password = randomBytes(16).toString("hex");
    const passwordFile = join(folder.path, "password");
    await writeFile(passwordFile, password, { mode: 0o600 });
    if (account) await chown(passwordFile, account.uid, account.gid);

    const cluster = [`--pgdata=${data}`, "--encoding=UTF8", "--no-locale", "--no-sync"];
    const login = ["--username=postgres", "--auth=password", `--pwfile=${passwordFile}`];
    await folder.run({ file: programs.initdb, args: [...cluster, ...login], account });

    return {
      command: (port) => ({
        file: programs.postgres,
        args: ["-D", data, "-p", `${port}`, ...settings.flatMap((setting) => ["-c", setting])],
        account,
        // A "fast shutdown". On SIGTERM it would wait for its clients to disconnect.
        stopSignal: "SIGINT",
      }),
      url: (port) => `postgres://postgres:${password}@127.0.0.1:${port}/postgres`,
      probe: postgresVersion,
      tidyAfterKill: () => removeSharedMemory(data),
    };
  },
};

/**
 * Only an orderly stop, or the next start, removes the small System V segment by which a server locks its data folder.
 * The seventh line of its pid file has the key and the id of the segment.
 */
async function removeSharedMemory(data: string): Promise<void> {
  const pidFile = await readFile(join(data, "postmaster.pid"), "utf8").catch(() => "");
  const id = pidFile.split("\n")[6]?.trim().split(/\s+/)[1];
  if (id) await promisify(execFile)("ipcrm", ["-m", id]).catch(() => {});
}
