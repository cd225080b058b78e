import { spawn } from "node:child_process";

/**
 * Runs a command to its end and resolves with its output. Rejects with the end of its output if the command fails or
 * takes longer than `timeoutMs`. On a timeout, it kills the command and its children.
 */
export function runCommand(command: string, args: readonly string[], timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    // A process group of its own, so that the timeout also ends what a shell or apt has started.
    const child = spawn(command, args, {
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    });
    let output = "";
    child.stdout.on("data", (chunk) => {
      output += chunk;
    });
    child.stderr.on("data", (chunk) => {
      output += chunk;
    });
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      if (child.pid) process.kill(-child.pid, "SIGKILL");
    }, timeoutMs);

    const settle = (failure?: string) => {
      clearTimeout(timer);
      // A daemon that the command has started may keep these pipes open, which must not block this process.
      child.stdout.destroy();
      child.stderr.destroy();
      if (failure === undefined) resolve(output);
      else reject(new Error(`${[command, ...args].join(" ")}: ${failure}${lastLines(output)}`));
    };
    child.once("error", (error) => settle(error.message));
    child.once("exit", (code, signal) => {
      const failure = late ? `not done within ${timeoutMs / 1000} s` : `ended with ${signal ?? code}`;
      const done = () => settle(code === 0 ? undefined : failure);
      // The last output may still arrive, unless a daemon keeps the pipe open.
      child.once("close", done);
      setTimeout(done, 500).unref();
    });
  });
}

function lastLines(output: string): string {
  const lines = output.trim().split("\n").slice(-5).join("\n");
  return lines ? `\n${lines}` : "";
}
