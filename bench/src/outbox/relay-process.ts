import { fork } from "node:child_process";
import { join } from "node:path";
import type { Ending } from "../ending.js";
import { within } from "../time-limit.js";
import type { RelayOrder, RelayReport } from "./relay-program.js";

/** A relay in a child process. */
export interface RelayProcess {
  /** The latest reported count. */
  readonly sent: number;
  /** Settles everything, ends the process, and resolves to its peak resident memory. Further calls do nothing more. */
  stop(): Promise<{ readonly peakMegabytes: number }>;
}

const stopLimitMs = 10_000;

export function startRelayProcess(order: RelayOrder, ending: Ending, onSent: () => void): RelayProcess {
  const child = fork(join(import.meta.dirname, "relay-program.js"), [JSON.stringify(order)]);
  const kill = ending.add(() => void child.kill("SIGKILL"));
  let sent = 0;
  const stopped = new Promise<{ peakMegabytes: number }>((resolve, reject) => {
    child.on("message", (report: RelayReport) => {
      if ("stopped" in report) return resolve(report);
      sent = report.sent;
      onSent();
    });
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`the relay's process ended with ${code}`)));
  });
  stopped.catch(() => {});
  const stop = async () => {
    try {
      child.send("stop");
      return await within(stopLimitMs, () => "the relay's process did not stop", stopped);
    } finally {
      await kill();
    }
  };
  let stopping: ReturnType<typeof stop> | undefined;
  return {
    get sent() {
      return sent;
    },
    stop() {
      stopping ??= stop();
      return stopping;
    },
  };
}
