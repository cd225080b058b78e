import { Command, CommanderError } from "commander";
import { type CommandDefinition, commandOf, type Surroundings } from "./call.js";
import { audit } from "./commands/audit.js";
import { completion } from "./commands/completion.js";
import { discard } from "./commands/discard.js";
import { doctor } from "./commands/doctor.js";
import { events } from "./commands/events.js";
import { held } from "./commands/held.js";
import { failed, list, parked, stuck } from "./commands/list.js";
import { migrate } from "./commands/migrate.js";
import { pause, resume } from "./commands/pause.js";
import { publish } from "./commands/publish.js";
import { purge } from "./commands/purge.js";
import { relay } from "./commands/relay.js";
import { release } from "./commands/release.js";
import { replay } from "./commands/replay.js";
import { retry } from "./commands/retry.js";
import { show } from "./commands/show.js";
import { status } from "./commands/status.js";
import { type ExitCode, exitCodes } from "./exit-codes.js";
import { failureOf } from "./failure.js";

// biome-ignore lint/suspicious/noExplicitAny: each command has flags of its own.
type AnyCommand = CommandDefinition<any>;

const groups: readonly (readonly [string, readonly AnyCommand[]])[] = [
  ["Set up and run", [migrate, relay, purge, doctor]],
  ["Look", [status, list, show, failed, stuck, parked, held, audit]],
  ["Mend", [retry, discard, release, replay, pause, resume]],
  ["More", [publish, events, completion]],
];

/** All commands. `end` receives the exit code of the one that runs. */
export function programOf(around: Surroundings, version: string, end: (code: ExitCode) => void): Command {
  const program = new Command("postbox")
    .description("Set Postbox up, run its relay, see what it does, and mend what is stuck.")
    .version(version)
    .configureOutput({
      writeOut: (text) => around.terminal.out(text.trimEnd()),
      writeErr: (text) => around.terminal.note(text.trimEnd()),
    })
    .showSuggestionAfterError()
    .addHelpText(
      "after",
      "\nExit codes: 0 done, 1 failed, 2 wrong use, 3 unreachable, 4 refused, 5 tables missing or of another " +
        "version,\n6 not found, 7 needs attention (--check, doctor), 8 not confirmed, 130 interrupted.",
    );
  for (const [title, commands] of groups) {
    program.commandsGroup(`${title}:`);
    for (const definition of commands) {
      const command = commandOf(definition, around, end);
      command.copyInheritedSettings(program);
      program.addCommand(command);
    }
  }
  return program;
}

/** Runs a command line. Resolves to its exit code, and never rejects: a failure is told on one line. */
export async function run(args: readonly string[], around: Surroundings, version: string): Promise<ExitCode> {
  let code: ExitCode = exitCodes.done;
  const program = programOf(around, version, (ended) => {
    code = ended;
  });
  for (const command of [program, ...program.commands]) command.exitOverride();
  try {
    await program.parseAsync([...args], { from: "user" });
    return code;
  } catch (thrown) {
    if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? exitCodes.done : exitCodes.usage;
    const failure = failureOf(thrown);
    const isInterrupted = around.terminal.signal.aborted && (thrown as Error)?.name === "AbortError";
    if (isInterrupted) return exitCodes.interrupted;
    if (args.includes("--json")) around.terminal.json({ error: { code: failure.code, text: failure.text } });
    around.terminal.note(`${around.terminal.colors.red("error:")} ${failure.text}`);
    return failure.exitCode;
  }
}
