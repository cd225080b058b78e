import { PostboxError } from "../../errors.js";
import type { Session } from "./own-connections.js";

/** Which server it is, as far as statements differ. */
export interface Server {
  readonly flavor: "mysql" | "mariadb" | "tidb";
  readonly version: string;
  /** Whether a READ UNCOMMITTED read shows what open transactions have written. TiDB shows committed rows only. */
  readonly hasDirtyReads: boolean;
  /** The largest statement that the server takes, in bytes. A longer one ends the connection. */
  readonly mostBytes: number;
  /** Whether SKIP LOCKED skips. TiDB accepts it and takes no lock at all. */
  readonly skipsLocked: boolean;
}

const oldest = { mariadb: [10, 6, 0], mysql: [8, 0, 17], tidb: [7, 4, 0] } as const;
const titles = { mariadb: "MariaDB", mysql: "MySQL", tidb: "TiDB" } as const;

/**
 * Reads a version text such as "10.11.19-MariaDB-0+deb12u1" or "8.0.11-TiDB-v8.5.1". Throws `server-unsupported` for a
 * server that lacks what the tables need.
 */
export function serverOf(text: string, mostBytes: number): Server {
  const tidb = /-TiDB-v?(\d+)\.(\d+)\.(\d+)/i.exec(text);
  const flavor = tidb ? "tidb" : /mariadb/i.test(text) ? "mariadb" : "mysql";
  // Some MariaDB servers put a version of MySQL in front of their own.
  const numbers = tidb ?? /(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)/.exec(text);
  const version = (numbers ?? []).slice(1, 4).map(Number);
  const needed = oldest[flavor];
  const first = needed.findIndex((number, index) => number !== version[index]);
  if (version.length === 3 && (first === -1 || (version[first] as number) > (needed[first] as number))) {
    const isTidb = flavor === "tidb";
    return { flavor, version: version.join("."), mostBytes, hasDirtyReads: !isTidb, skipsLocked: !isTidb };
  }
  throw new PostboxError(
    "server-unsupported",
    `the server says that it is ${text}, and Postbox needs ${titles[flavor]} ${needed.join(".")} or later; ` +
      "upgrade the server",
  );
}

export async function requireServer(session: Session): Promise<Server> {
  const { rows } = await session.run("SELECT VERSION() AS version, @@max_allowed_packet AS bytes");
  return serverOf(String(rows[0]?.version), Number(rows[0]?.bytes));
}
