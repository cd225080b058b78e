import { parseArgs } from "node:util";

export interface CommandLine {
  readonly part: string;
  readonly json: boolean;
  readonly quick: boolean;
  readonly rounds: number;
  /** Names to measure; empty means all. */
  readonly only: readonly string[];
}

const usage = "usage: npm run bench -- outbox|inbox|brokers|tuning [--json] [--only name,…] [--rounds n] [--quick]";

export function commandLine(args: readonly string[]): CommandLine {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      json: { type: "boolean", default: false },
      quick: { type: "boolean", default: false },
      rounds: { type: "string", default: "3" },
      only: { type: "string", default: "" },
    },
  });
  const [part] = positionals;
  const rounds = Number(values.rounds);
  if (part === undefined || positionals.length > 1 || !(Number.isInteger(rounds) && rounds >= 1))
    throw new Error(usage);
  const only = values.only.split(",").filter((name) => name !== "");
  return { part, json: values.json, quick: values.quick, rounds, only };
}
