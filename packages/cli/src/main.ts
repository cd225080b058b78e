import { createRequire } from "node:module";
import { exitCodes } from "./exit-codes.js";
import { run } from "./program.js";
import { processTerminal } from "./terminal.js";

/** A shell, `npx` and `timeout` may pass one signal on twice. */
const sameSignalMs = 1_000;

/** Runs the command line of this process, and sets its exit code. */
export async function runInProcess(): Promise<void> {
  const stop = new AbortController();
  let stoppedAt = 0;
  for (const name of ["SIGINT", "SIGTERM"] as const) {
    process.on(name, () => {
      // Asked again, it ends at once: whatever it waits for may never come.
      if (stop.signal.aborted && performance.now() - stoppedAt > sameSignalMs) process.exit(exitCodes.interrupted);
      if (!stop.signal.aborted) stoppedAt = performance.now();
      stop.abort();
    });
  }
  // `postbox list | head` closes the pipe early, which is no failure.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(exitCodes.done);
    throw error;
  });
  const { version } = createRequire(import.meta.url)("../package.json") as { readonly version: string };
  const around = { terminal: processTerminal(stop.signal), env: process.env, cwd: process.cwd() };
  process.exitCode = await run(process.argv.slice(2), around, version);
}
