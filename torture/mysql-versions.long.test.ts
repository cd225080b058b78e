import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { type DebianRoot, debianRoot, freePort } from "@postbox/testkit/servers";
import { expect, it } from "vitest";
import { mariadbVersion } from "../packages/testkit/src/servers/services/mariadb.js";

/** MySQL as Debian sid has it: every test of the store and of the libraries runs against it. */
it(
  "the newest MySQL of Debian passes the tests of the store and of the libraries",
  async ({ skip }) => {
    let root: DebianRoot;
    try {
      root = await debianRoot("sid", "mysql-server");
    } catch (error) {
      return skip(`it cannot be installed here: ${(error as Error).message}`);
    }
    const port = await freePort();
    const url = `mysql://root@127.0.0.1:${port}`;
    let server: ChildProcess | undefined;
    try {
      await mkdir(join(root.path, "data"));
      const settings = ["--no-defaults", "--user=root", "--datadir=/data/my", "--secure-file-priv="];
      const [code] = await once(mysqld(root, [...settings, "--initialize-insecure"]), "exit");
      expect(code).toBe(0);
      const address = [`--port=${port}`, "--bind-address=127.0.0.1", "--mysqlx=OFF", "--socket=/tmp/my.sock"];
      server = mysqld(root, [...settings, ...address, "--max-connections=400", "--skip-log-bin"]);
      await expect.poll(() => mariadbVersion(url).catch(() => ""), { timeout: 60_000 }).not.toBe("");
      const { POSTBOX_TEST_LONG: _, ...environment } = process.env;
      const tests = [
        "packages/postbox/src/stores/mysql",
        "packages/postbox/src/transactions/libraries-on-mysql.test.ts",
      ];
      const run = spawn("npx", ["vitest", "run", ...tests], {
        env: { ...environment, POSTBOX_TEST_MARIADB_URL: url },
        stdio: "inherit",
        timeout: 20 * 60_000,
      });
      expect((await once(run, "exit"))[0]).toBe(0);
    } finally {
      if (server !== undefined && server.exitCode === null) {
        server.kill("SIGTERM");
        await once(server, "exit");
      }
      await root[Symbol.asyncDispose]();
    }
  },
  40 * 60_000,
);

function mysqld(root: DebianRoot, settings: readonly string[]): ChildProcess {
  return spawn("chroot", [root.path, "mysqld", ...settings], { stdio: "ignore" });
}
