import { createConnection } from "mysql2/promise";
import type { Service } from "../service.js";

/** A server that is busy with other tests may be slow; a missing one fails at once. */
const timeoutMs = 10_000;

export const mariadb: Service = {
  name: "mariadb",
  title: "MariaDB",
  defaultUrl: "mysql://root@127.0.0.1:3306",
  variable: "POSTBOX_TEST_MARIADB_URL",
  probe: mariadbVersion,
  debian: {
    package: "mariadb-server",
    configuration: {},
    start: "service mariadb start",
    // Debian's root may log in by its socket only.
    afterInstallation: `mariadb -e "ALTER USER root@localhost IDENTIFIED BY ''"`,
  },
};

/** Asks the MariaDB or MySQL server at `url` for its version. */
export async function mariadbVersion(url: string): Promise<string> {
  const connection = await createConnection({ uri: url, connectTimeout: timeoutMs });
  connection.on("error", () => {});
  try {
    const [rows] = await connection.query({ sql: "SELECT VERSION() AS version", timeout: timeoutMs });
    return String((rows as { readonly version: string }[])[0]?.version);
  } finally {
    connection.destroy();
  }
}
