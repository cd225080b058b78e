import { existsSync, openSync, readFileSync, writeSync } from "node:fs";
import type { HistoryEvent } from "@postbox/testkit/history";

/** A thing that a process saw; and of a transaction of which it was told no end, that it was told none. */
export type DiaryEvent = HistoryEvent | { readonly what: "unknown"; readonly tx: string };

/** When, on the clock that all processes of a machine share: it never goes back. In microseconds. */
export type Entry = DiaryEvent & { readonly at: number };

/** What one process saw, in a file that is only ever appended to: it is there when the process is not. */
export interface Diary {
  /** The moment defaults to now. */
  write(event: DiaryEvent, at?: number): void;
}

export function now(): number {
  return Number(process.hrtime.bigint() / 1_000n);
}

export function openDiary(file: string): Diary {
  const handle = openSync(file, "a");
  return {
    write(event, at = now()) {
      writeSync(handle, `${JSON.stringify({ at, ...event })}\n`);
    },
  };
}

/** Of a line that its writer did not live to end, there is nothing. */
export function readDiary(file: string): Entry[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n");
  const torn = lines.pop();
  const entries = lines.map((line) => parsed(line)).filter((entry) => entry !== undefined);
  if (torn) {
    const last = parsed(torn);
    if (last !== undefined) entries.push(last);
  }
  return entries;
}

/** The next writer of a torn line has gone on in the same line. */
function parsed(line: string): Entry | undefined {
  try {
    return JSON.parse(line.slice(Math.max(0, line.lastIndexOf('{"at":')))) as Entry;
  } catch {
    return undefined;
  }
}
