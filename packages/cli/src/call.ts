import { Command } from "commander";
import type { ConnectedStore, ConnectedTransport } from "postbox/connect";
import { loadConfig, type PostboxConfig } from "./config.js";
import { type ExitCode, exitCodes } from "./exit-codes.js";
import { wrongUse } from "./failure.js";
import type { Terminal } from "./terminal.js";

/** What surrounds a command: the terminal, the environment, the folder. */
export interface Surroundings {
  readonly terminal: Terminal;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
}

/** One call of a command, with its flags. */
export class Call<Flags = object> {
  readonly terminal: Terminal;
  readonly flags: Flags & CommonFlags;
  readonly #around: Surroundings;
  readonly #opened: { close(): Promise<void> }[] = [];
  #config: Promise<PostboxConfig> | undefined;
  #database: Promise<ConnectedStore> | undefined;

  constructor(around: Surroundings, flags: Flags & CommonFlags) {
    this.#around = around;
    this.terminal = around.terminal;
    this.flags = flags;
  }

  get signal(): AbortSignal {
    return this.terminal.signal;
  }

  /** The folder in which the command was called. */
  get cwd(): string {
    return this.#around.cwd;
  }

  config(): Promise<PostboxConfig> {
    this.#config ??= loadConfig(this.#around.cwd, this.flags.config);
    return this.#config;
  }

  /** The database that the flags, the variables or the configuration name. It is opened once per call. */
  database(): Promise<ConnectedStore> {
    this.#database ??= this.#openDatabase();
    return this.#database;
  }

  async #openDatabase(): Promise<ConnectedStore> {
    const config = await this.config();
    const { env } = this.#around;
    const url = this.flags.database ?? set(env.POSTBOX_DATABASE_URL) ?? config.database;
    if (url === undefined) {
      throw wrongUse(
        "no database is given; pass --database <url>, set POSTBOX_DATABASE_URL, or put it into the config",
      );
    }
    const schema = this.flags.schema ?? set(env.POSTBOX_SCHEMA) ?? config.schema;
    const { connectStore } = await import("postbox/connect");
    const connected = await connectStore(url, schema === undefined ? {} : { schema });
    this.#opened.push(connected);
    return connected;
  }

  /** Whether a broker is named. */
  async hasBroker(): Promise<boolean> {
    return (await this.#brokerUrl()) !== undefined;
  }

  async #brokerUrl(): Promise<string | undefined> {
    return this.flags.broker ?? set(this.#around.env.POSTBOX_BROKER_URL) ?? (await this.config()).broker;
  }

  /** The broker that the flags, the variables or the configuration name. */
  async broker(
    options: Parameters<typeof import("postbox/connect")["connectTransport"]>[1],
  ): Promise<ConnectedTransport> {
    const url = await this.#brokerUrl();
    if (url === undefined) {
      throw wrongUse("no broker is given; pass --broker <url>, set POSTBOX_BROKER_URL, or put it into the config");
    }
    const { connectTransport } = await import("postbox/connect");
    const connected = await connectTransport(url, options);
    this.#opened.push(connected);
    return connected;
  }

  /** Closes what the call has opened, the latest first. */
  async close(): Promise<void> {
    for (const each of this.#opened.splice(0).reverse()) await each.close();
  }
}

const set = (text: string | undefined) => (text === undefined || text.trim() === "" ? undefined : text.trim());

/** The flags of every command. */
export interface CommonFlags {
  readonly database?: string;
  readonly broker?: string;
  readonly schema?: string;
  readonly config?: string;
  readonly json?: boolean;
}

/** A command: how it is called, and what it does. */
export interface CommandDefinition<Flags> {
  readonly name: string;
  /** One line in the list of commands. */
  readonly summary: string;
  /** More for its own help. Defaults to the summary. */
  readonly description?: string;
  /** Such as `<id>`. Defaults to none. */
  readonly args?: readonly (readonly [name: string, description: string])[];
  /** Its own flags. */
  readonly flags?: (command: Command) => Command;
  /** What it connects to. Defaults to the database. */
  readonly connects?: "database" | "database and broker" | "nothing";
  readonly examples: readonly string[];
  /** Resolves to the exit code; undefined is `done`. */
  run(call: Call<Flags>, ...args: string[]): Promise<ExitCode | undefined>;
}

/** The definition as a command of the parser. `end` receives the exit code. */
export function commandOf<Flags extends object>(
  definition: CommandDefinition<Flags>,
  around: Surroundings,
  end: (code: ExitCode) => void,
): Command {
  const { name, summary, description = summary, args = [], flags, connects = "database", examples, run } = definition;
  const command = new Command(name).summary(summary).description(description);
  for (const [arg, about] of args) command.argument(arg, about);
  flags?.(command);
  if (connects !== "nothing") {
    command
      .option("--database <url>", "postgres://…, mysql://…, sqlite:…; or POSTBOX_DATABASE_URL")
      .option("--schema <name>", "the schema of the tables; or POSTBOX_SCHEMA")
      .option("--config <file>", "defaults to postbox.config.ts, .mts, .js or .mjs")
      .option("--json", "the result as JSON");
  }
  if (connects === "database and broker")
    command.option("--broker <url>", "amqp://…, kafka://…; or POSTBOX_BROKER_URL");
  command.addHelpText("after", `\nExamples:\n${examples.map((example) => `  $ ${example}`).join("\n")}`);
  return command.action(async (...given: unknown[]) => {
    const own = given.slice(0, args.length).flat() as string[];
    const call = new Call<Flags>(around, command.opts());
    try {
      end((await run(call, ...own)) ?? exitCodes.done);
    } finally {
      await call.close();
    }
  });
}
