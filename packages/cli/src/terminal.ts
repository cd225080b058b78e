import { createInterface } from "node:readline/promises";
import type { Readable } from "node:stream";
import pc from "picocolors";
import { plainJson } from "./plain-text.js";

type Colors = ReturnType<typeof pc.createColors>;

/** Where a command reads and writes. Results go to standard output, everything else to standard error. */
export interface Terminal {
  /** Writes a line of the result. */
  out(line: string): void;
  /** Writes a value of the result as JSON. */
  json(value: unknown): void;
  /** Writes a line that is no result: a question, progress, a failure. */
  note(line: string): void;
  /** Rewrites the current line of standard error; only if that is a terminal. */
  progress(line: string): void;
  /** Clears the screen; only if standard output is a terminal. */
  clear(): void;
  /** Asks a question whose answer is yes or no. Anything but `y` or `yes` is no. */
  ask(question: string): Promise<boolean>;
  /** Whether a person can answer. */
  readonly canAsk: boolean;
  /** Whether standard output is a terminal. */
  readonly isTerminal: boolean;
  /** Whether standard error is one, and so shows progress. */
  readonly showsProgress: boolean;
  /** How wide standard output is; undefined if it is no terminal, so that nothing is cut. */
  readonly columns: number | undefined;
  readonly colors: Colors;
  readonly input: Readable;
  /** Aborted by Ctrl-C, or by SIGTERM. */
  readonly signal: AbortSignal;
}

/** The terminal of this process. Without a terminal, or with NO_COLOR, there are no colors. */
export function processTerminal(signal: AbortSignal): Terminal {
  const { stdin, stdout, stderr, env } = process;
  const isTerminal = stdout.isTTY === true;
  const showsProgress = stderr.isTTY === true;
  let isInProgress = false;
  const endProgress = () => {
    if (isInProgress) stderr.write("\r\u001b[K");
    isInProgress = false;
  };
  return {
    out(line) {
      endProgress();
      stdout.write(`${line}\n`);
    },
    json(value) {
      endProgress();
      stdout.write(`${plainJson(value, isTerminal ? 2 : undefined)}\n`);
    },
    note(line) {
      endProgress();
      stderr.write(`${line}\n`);
    },
    progress(line) {
      if (!showsProgress) return;
      stderr.write(`\r\u001b[K${line}`);
      isInProgress = true;
    },
    clear() {
      if (isTerminal) stdout.write("\u001b[H\u001b[2J\u001b[3J");
    },
    async ask(question) {
      const questions = createInterface({ input: stdin, output: stderr });
      try {
        const answer = await questions.question(`${question} [y/N] `, { signal });
        return /^y(?:es)?$/i.test(answer.trim());
      } finally {
        questions.close();
      }
    },
    canAsk: stdin.isTTY === true && showsProgress,
    isTerminal,
    showsProgress,
    columns: isTerminal ? stdout.columns : undefined,
    colors: pc.createColors(isTerminal && (env.NO_COLOR === undefined || env.NO_COLOR === "")),
    input: stdin,
    signal,
  };
}
