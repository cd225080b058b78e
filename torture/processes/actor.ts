import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Cue, Part, Role } from "./part.js";

/** A part, and the processes that play it one after the other. */
export interface Actor {
  readonly part: Part;
  /** Whether there is a process, and it is not paused. */
  readonly plays: boolean;
  /** Whether the last process has ended by itself, all its work done. */
  readonly done: boolean;
  start(): void;
  /** SIGKILL, in the middle of its work if there is any soon. Resolves when it is dead. */
  die(): Promise<void>;
  /** SIGKILL, at once. */
  kill(): Promise<void>;
  /** SIGSTOP, in the middle of its work likewise, for so long: it lives, and does not know that time goes by. */
  pause(forMs: number): Promise<void>;
  /** In good order: resolves with its exit code, or null for one that had to be killed after all. */
  stop(): Promise<number | null>;
}

/** How long to wait for something to do, and for an end in good order. */
const idleMs = 1_000;
const patienceMs = 30_000;

/** Lets a process give itself a signal when it is busy; and if it never is, gives it. */
function signal(child: ChildProcess, name: "SIGKILL" | "SIGSTOP"): NodeJS.Timeout {
  // It may be dying already.
  child.send({ signal: name, until: Date.now() + idleMs } satisfies Cue, () => {});
  return setTimeout(() => child.kill(name), idleMs);
}

export function createActor(role: Role, part: Part, log: string): Actor {
  // As it is built, also for a test that runs from the sources.
  const program = fileURLToPath(new URL(`../dist/processes/${role}.js`, import.meta.url));
  let child: ChildProcess | undefined;
  let paused = false;
  let done = false;

  return {
    part,
    get plays() {
      return child !== undefined && !paused;
    },
    get done() {
      return done;
    },
    start() {
      if (child !== undefined || done) return;
      const output = openSync(log, "a");
      const own = fork(program, [JSON.stringify(part)], {
        execArgv: [],
        stdio: ["ignore", output, output, "ipc"],
      });
      closeSync(output);
      child = own;
      own.once("exit", (code) => {
        done = code === 0;
        if (child === own) child = undefined;
      });
    },
    async die() {
      if (child === undefined) return;
      const gone = once(child, "exit");
      const idle = signal(child, "SIGKILL");
      await gone;
      clearTimeout(idle);
      paused = false;
    },
    async kill() {
      if (child === undefined) return;
      const gone = once(child, "exit");
      child.kill("SIGKILL");
      await gone;
      paused = false;
    },
    async pause(forMs) {
      const own = child;
      if (own === undefined) return;
      paused = true;
      signal(own, "SIGSTOP");
      await sleep(idleMs + forMs);
      own.kill("SIGCONT");
      if (child === own) paused = false;
    },
    async stop() {
      if (child === undefined) return done ? 0 : null;
      const gone = once(child, "exit");
      child.send("stop" satisfies Cue);
      const late = setTimeout(() => child?.kill("SIGKILL"), patienceMs);
      const [code] = await gone;
      clearTimeout(late);
      return code;
    },
  };
}
