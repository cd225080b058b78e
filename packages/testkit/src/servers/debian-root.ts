import { chmod, copyFile, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createGuardedFolder } from "./guarded-folder.js";
import { runCommand } from "./run-command.js";

const timeoutMs = 10 * 60_000;

/** The root of another system, in a folder of its own. */
export interface DebianRoot extends AsyncDisposable {
  readonly path: string;
}

/**
 * Installs a Debian of this release with one package into a temporary folder, for server versions that this machine
 * does not have. Takes a minute or two. Rejects with the reason if this machine cannot do it: it needs root, on a
 * Debian with debootstrap. The folder is removed on disposal, or when this process ends.
 *
 * @example
 * ```ts
 * await using root = await debianRoot("trixie", "postgresql");
 * console.log(root.path);
 * ```
 */
export async function debianRoot(release: string, packageName: string): Promise<DebianRoot> {
  if (process.getuid?.() !== 0) throw new Error("only the superuser can install another system");
  const mirror = await debianMirror();
  const folder = createGuardedFolder();
  const path = join(folder.path, "root");
  try {
    await mkdir(path);
    await runCommand("debootstrap", ["--variant=minbase", release, path, mirror], timeoutMs);
    // Servers resolve localhost.
    await copyFile("/etc/hosts", join(path, "etc/hosts"));
    // Installed services must not start by themselves.
    await writeFile(join(path, "usr/sbin/policy-rc.d"), "#!/bin/sh\nexit 101\n");
    await chmod(join(path, "usr/sbin/policy-rc.d"), 0o755);
    // A snapshot mirror has expired package lists.
    const apt = ["apt-get", "-o", "Acquire::Check-Valid-Until=false"];
    await runCommand("chroot", [path, ...apt, "update"], timeoutMs);
    await runCommand("chroot", [path, ...apt, "install", "--yes", "--no-install-recommends", packageName], timeoutMs);
  } catch (error) {
    await folder.release();
    throw error;
  }
  return { path, [Symbol.asyncDispose]: () => folder.release() };
}

/** The mirror that this machine's own packages come from. */
async function debianMirror(): Promise<string> {
  const format = "$(LABEL) $(REPO_URI)";
  const targets = await runCommand("apt-get", ["indextargets", "--format", format, "Created-By: Packages"], timeoutMs);
  const mirror = /^Debian (\S+)$/m.exec(targets)?.[1];
  if (mirror === undefined) throw new Error("apt knows no mirror of Debian");
  return mirror;
}
