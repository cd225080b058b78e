import type { TextLogger } from "postbox";
import { plain, plainJson } from "./plain-text.js";
import type { Terminal } from "./terminal.js";

type Level = "debug" | "info" | "warn" | "error";

/** A logger that writes one line for each event to standard error, as text or as JSON, with the time in front. */
export function logLines(terminal: Terminal, format: "text" | "json", verbose: boolean): TextLogger {
  const write = (level: Level) => (text: string) => {
    const time = new Date().toISOString();
    if (format === "json") terminal.note(plainJson({ time, level, text }));
    else terminal.note(`${time} ${level.padEnd(5)} ${plain(text)}`);
  };
  const nothing = () => {};
  return { debug: verbose ? write("debug") : nothing, info: write("info"), warn: write("warn"), error: write("error") };
}
