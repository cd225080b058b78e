import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { within } from "./within.js";

/** A command for a guard to run. */
export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  /** Variables besides those of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** The account to run it as. Defaults to that of this process. */
  readonly account?: Account;
  /** The signal that makes it end by itself. Defaults to SIGTERM. */
  readonly stopSignal?: NodeJS.Signals;
}

export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** A running command. */
export interface Running {
  readonly pid: number;
  /** Resolves when it has ended, with its exit code, its signal, or why it could not run. */
  readonly ended: Promise<string>;
}

/**
 * A temporary folder in `parent`, with a guard process that removes it, and whatever runs in it, when `release` is
 * called or this process ends in any way (see `guard.js`).
 */
export interface GuardedFolder {
  readonly path: string;
  /** Starts a command; one at a time. */
  start(command: Command): Promise<Running>;
  /** Runs a command to its end. Rejects with its output unless it exits with 0 within a minute. */
  run(command: Command): Promise<void>;
  /** The last output of the commands. */
  log(): Promise<string>;
  /** Resolves when the command has ended and the folder is removed. Idempotent. */
  release(): Promise<void>;
}

export function createGuardedFolder(parent = tmpdir()): GuardedFolder {
  const path = mkdtempSync(join(parent, "postbox-"));
  const guard = spawn(process.execPath, [fileURLToPath(new URL("./guard.js", import.meta.url)), path], {
    // In its own process group: a Ctrl-C for this process must not reach the guard while it still has to clean up.
    detached: true,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const gone = new Promise<void>((resolve) => guard.once("exit", () => resolve()));
  // A write to an ended guard fails here. Its end also shows in its answers, which stop then.
  guard.stdin.on("error", () => {});
  const answers = createInterface({ input: guard.stdout })[Symbol.asyncIterator]();
  const nextAnswer = async (): Promise<Answer> => {
    const { value, done } = await answers.next();
    return done ? { ended: "its guard has gone" } : JSON.parse(value);
  };

  const start = async (command: Command): Promise<Running> => {
    guard.stdin.write(`${JSON.stringify(command)}\n`);
    const { started, ended } = await nextAnswer();
    if (started === undefined) throw new Error(`cannot run ${command.file}: ${ended}`);
    return { pid: started, ended: nextAnswer().then((answer) => String(answer.ended)) };
  };
  const log = async () => {
    const text = await readFile(join(path, "log"), "utf8").catch(() => "");
    return text.trim().split("\n").slice(-15).join("\n");
  };

  return {
    path,
    start,
    log,
    run: async (command) => {
      const { ended } = await start(command);
      const how = await within(60_000, ended, () => `${command.file} is not done after a minute`);
      if (how !== "0") throw new Error(`${command.file} ended with ${how}:\n${await log()}`);
    },
    release: async () => {
      guard.stdin.end();
      await within(15_000, gone, () => `the server in ${path} did not stop; its guard is process ${guard.pid}`);
    },
  };
}

interface Answer {
  readonly started?: number;
  readonly ended?: number | string;
}
