import type { Command } from "commander";
import { wrongUse } from "./failure.js";
import type { Terminal } from "./terminal.js";

/** The flags of a command that changes something. */
export interface ConfirmFlags {
  readonly dryRun?: boolean;
  readonly yes?: boolean;
}

export function withConfirm(command: Command): Command {
  return command
    .option("--dry-run", "say what would change, and change nothing")
    .option("--yes", "do not ask; needed where nobody can answer");
}

/** Whether to go on: asks, unless `--yes` was given. */
export async function confirmed(terminal: Terminal, { yes }: ConfirmFlags, question: string): Promise<boolean> {
  if (yes) return true;
  if (!terminal.canAsk) throw wrongUse("this changes messages and nobody can be asked; pass --yes, or --dry-run first");
  return terminal.ask(question);
}
