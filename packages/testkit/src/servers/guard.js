/*
 * A process that runs one server in one folder for its owner, and outlives the owner just long enough to clean up:
 * when the owner lets go of our standard input, on purpose or because it died in whatever way, the server is stopped
 * and the folder removed. An exit hook in the owner could not promise that: SIGKILL and a second Ctrl-C skip it.
 *
 * Usage: node guard.js <folder>. Each line that comes in is a command to run; one at a time. Lines that go out:
 * {"started": pid} and {"ended": code, signal or error}. What commands print goes to <folder>/log.
 *
 * Plain JavaScript, so that Node can run it from the sources as well as from the build.
 */
import { spawn } from "node:child_process";
import { closeSync, openSync, rmSync } from "node:fs";
import { createInterface } from "node:readline";

/** @typedef {import("./guarded-folder.js").Command} Command */

const folder = process.argv[2] ?? "";
/** @type {import("node:child_process").ChildProcess | undefined} */
let running;
/** @type {Command | undefined} */
let current;
let leaving = false;

/** @param {Command} command */
function start(command) {
  current = command;
  const log = openSync(`${folder}/log`, "a");
  const { uid, gid } = command.account ?? {};
  const env = { ...process.env, ...command.env };
  const child = spawn(command.file, command.args, { cwd: folder, stdio: ["ignore", log, log], uid, gid, env });
  closeSync(log);
  running = child;
  child.once("spawn", () => say({ started: child.pid }));
  child.once("error", (error) => ended(error.message));
  child.once("exit", (code, signal) => ended(signal ?? code));
}

/** @param {string | number | null} how */
function ended(how) {
  running = undefined;
  if (leaving) removeFolder();
  else say({ ended: how });
}

/** @param {object} line */
function say(line) {
  if (!leaving) process.stdout.write(`${JSON.stringify(line)}\n`);
}

function leave() {
  if (leaving) return;
  leaving = true;
  if (!running) return removeFolder();
  running.kill(current?.stopSignal);
  setTimeout(() => running?.kill("SIGKILL"), 5_000);
}

function removeFolder() {
  // Children of a killed server may write for a moment longer: hence the retries.
  rmSync(folder, { recursive: true, force: true, maxRetries: 40, retryDelay: 50 });
  process.exit();
}

// The owner may be gone while we answer it.
process.stdout.on("error", leave);
for (const signal of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) process.on(signal, leave);
createInterface({ input: process.stdin })
  .on("line", (line) => start(JSON.parse(line)))
  .on("close", leave);
