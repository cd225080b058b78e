import type { AnyProblem } from "postbox/admin";
import type { ConnectedStore } from "postbox/connect";

type Settings = ReadonlyMap<string, string>;

/** What a setting of PostgreSQL can do to messages. */
interface Check {
  readonly setting: string;
  isWrong(value: string, all: Settings): boolean;
  readonly severity: AnyProblem["severity"];
  text(value: string, all: Settings): string;
}

const checks: readonly Check[] = [
  {
    setting: "fsync",
    isWrong: (value) => value === "off",
    severity: "error",
    text: () =>
      "fsync is off, so a crash of the server can lose or corrupt everything, messages included; set fsync = on",
  },
  {
    setting: "full_page_writes",
    isWrong: (value) => value === "off",
    severity: "error",
    text: () =>
      "full_page_writes is off, so a crash of the server can corrupt the tables; set full_page_writes = on, unless " +
      "the file system never writes part of a page",
  },
  {
    setting: "synchronous_commit",
    isWrong: (value) => value === "off",
    severity: "warning",
    text: () =>
      "synchronous_commit is off, so a crash of the server can lose the transactions of the last moment, with their " +
      "messages; set it to on where messages matter",
  },
  {
    setting: "autovacuum",
    isWrong: (value) => value === "off",
    severity: "error",
    text: () => "autovacuum is off, so the tables grow with every message that is sent; set autovacuum = on",
  },
  {
    setting: "max_connections",
    isWrong: (value) => Number(value) < 20,
    severity: "warning",
    text: (value) =>
      `the server takes ${value} connections; a relay needs up to three, each handler that runs concurrently one`,
  },
  {
    setting: "transaction_read_only",
    isWrong: (value) => value === "on",
    severity: "error",
    text: () => "the server or the database is read-only, as a standby is; connect to the primary",
  },
];

/** What is wrong with the server's settings. Each store that has settings of this kind is asked for its own. */
export async function serverFindings(database: ConnectedStore): Promise<AnyProblem[]> {
  if (database.kind !== "postgres") return [];
  const names = checks.map(({ setting }) => setting);
  const { rows } = await database.pool.query<{ name: string; setting: string }>(
    "SELECT name, setting FROM pg_settings WHERE name = ANY ($1::text[])",
    [names],
  );
  const settings: Settings = new Map(rows.map(({ name, setting }) => [name, setting]));
  return checks.flatMap(({ setting, isWrong, severity, text }) => {
    const value = settings.get(setting);
    if (value === undefined || !isWrong(value, settings)) return [];
    return [{ code: `server-${setting.replaceAll("_", "-")}`, severity, text: text(value, settings) }];
  });
}
