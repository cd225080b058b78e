import { setTimeout as sleep } from "node:timers/promises";
import { Option } from "commander";
import type { AnyProblem } from "postbox/admin";
import { withCommand } from "../advice.js";
import type { Call, CommandDefinition } from "../call.js";
import { readDuration } from "../duration.js";
import { exitCodes } from "../exit-codes.js";
import { CliError, failureOf } from "../failure.js";
import { plain } from "../plain-text.js";

interface Flags {
  readonly print?: Dialect;
  readonly check?: boolean;
  readonly wait?: number;
}

type Dialect = "postgres" | "mysql" | "sqlite";

const problemCodes: ReadonlySet<string> = new Set(["schema-missing", "schema-outdated", "schema-newer"]);
const betweenMs = 500;

/** Creates or updates the tables. */
export const migrate: CommandDefinition<Flags> = {
  name: "migrate",
  summary: "Create or update the tables",
  description:
    "Creates the tables, or updates them to this version. May be repeated, and run by several processes at once.",
  flags: (command) =>
    command
      .addOption(
        new Option("--print <dialect>", "write the SQL for your own migrator, without a database")
          .choices(["postgres", "mysql", "sqlite"])
          .conflicts(["check", "wait"]),
      )
      .option("--check", "change nothing; exit code 7 if the tables are not up to date")
      .option("--wait <duration>", "wait this long for the database to accept connections", readDuration),
  examples: [
    "postbox migrate --database postgres://localhost/shop",
    "postbox migrate --print postgres > migrations/0007_postbox.sql",
    "postbox migrate --check --wait 30s",
  ],
  async run(call) {
    const { flags, terminal } = call;
    if (flags.print !== undefined) {
      terminal.out((await sqlOf[flags.print](flags.schema)).trimEnd());
      return exitCodes.done;
    }
    const { store } = await call.database();
    if (!flags.check) {
      await patiently(call, () => store.migrate());
      if (flags.json) terminal.json({ current: true });
      else terminal.out("The tables are up to date.");
      return exitCodes.done;
    }
    const problem = await patiently(call, async () => schemaProblem((await store.health({ box: "outbox" })).problems));
    if (flags.json) terminal.json({ current: problem === undefined, ...(problem && { problem }) });
    else
      terminal.out(
        problem === undefined ? "The tables are up to date." : plain(withCommand(problem.code, problem.text)),
      );
    return problem === undefined ? exitCodes.done : exitCodes.attention;
  },
};

/** Throws if the database was not reached, so that nothing is known of its tables. */
function schemaProblem(problems: readonly AnyProblem[]): AnyProblem | undefined {
  const away = problems.find(({ code }) => code === "unreachable" || code === "store-refused");
  if (away === undefined) return problems.find(({ code }) => problemCodes.has(code));
  throw new CliError(away.code === "unreachable" ? exitCodes.unreachable : exitCodes.refused, away.text);
}

/** In MySQL, a schema is a database. */
const sqlOf: Record<Dialect, (schema: string | undefined) => Promise<string>> = {
  postgres: async (schema) => (await import("postbox/postgres")).migrationSql(schema === undefined ? {} : { schema }),
  mysql: async (database) => (await import("postbox/mysql")).migrationSql(database === undefined ? {} : { database }),
  sqlite: async () => (await import("postbox/sqlite")).migrationSql(),
};

/** Tries again while the database is unreachable, for as long as `--wait` says. */
async function patiently<R>(call: Call<Flags>, work: () => Promise<R>): Promise<R> {
  const until = performance.now() + (call.flags.wait ?? 0);
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const isAway = failureOf(error).exitCode === exitCodes.unreachable;
      if (!isAway || call.signal.aborted || performance.now() + betweenMs >= until) throw error;
      await sleep(betweenMs, undefined, { signal: call.signal }).catch(() => {});
    }
  }
}
