import { spawnSync } from "node:child_process";
import { join } from "node:path";
import type { Recipe } from "../recipe.js";
import { mariadbVersion } from "../services/mariadb.js";

const settings = [
  "--no-defaults",
  "--bind-address=127.0.0.1",
  "--skip-log-bin",
  "--max-connections=400",
  "--innodb-buffer-pool-size=128M",
  // A commit reaches the operating system, so it survives a kill of the server. A power failure need not be survived.
  "--innodb-flush-log-at-trx-commit=2",
  "--innodb-doublewrite=0",
];

/** The MariaDB of this system, with a root that needs no password on its port of loopback, and one more setting. */
export const mariadb = (setting: string): Recipe => ({
  prepare: async (folder) => {
    const data = join(folder.path, "data");
    // As root, the server asks for an explicit account.
    const account = process.getuid?.() === 0 ? ["--user=root"] : [];
    const install = [
      "--no-defaults",
      `--datadir=${data}`,
      "--auth-root-authentication-method=normal",
      "--skip-test-db",
    ];
    await folder.run({ file: "mariadb-install-db", args: [...install, ...account] });
    return {
      command: (port) => ({
        file: "mariadbd",
        args: [
          ...settings,
          ...(setting === "" ? [] : [setting]),
          ...account,
          `--datadir=${data}`,
          `--port=${port}`,
          `--socket=${join(folder.path, "mariadb.sock")}`,
          `--pid-file=${join(folder.path, "mariadb.pid")}`,
        ],
      }),
      url: (port) => `mysql://root@127.0.0.1:${port}`,
      probe: mariadbVersion,
    };
  },
});

export function isMariadbInstalled(): boolean {
  return spawnSync("mariadbd", ["--version"], { stdio: "ignore" }).status === 0;
}
