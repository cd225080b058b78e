import { userInfo } from "node:os";
import type { Command } from "commander";
import type { Operator } from "postbox/admin";

/** The flags that say who makes a change, and why. */
export interface OperatorFlags {
  readonly by?: string;
  readonly reason?: string;
}

export function withOperator(command: Command): Command {
  return command
    .option("--by <name>", "who makes the change, for the audit; defaults to the user of this system")
    .option("--reason <text>", "why, for the audit");
}

export function operatorOf({ by = userName(), reason }: OperatorFlags): Operator {
  return { by, ...(reason !== undefined && { reason }) };
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    // A container may run under a number without a name.
    return `uid ${process.getuid?.() ?? "unknown"}`;
  }
}
