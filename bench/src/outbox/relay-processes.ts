import type { Ending } from "../ending.js";
import { within } from "../time-limit.js";
import { type RelayProcess, startRelayProcess } from "./relay-process.js";
import type { RelayOrder } from "./relay-program.js";

/** Several relays on one box, each in a child process. */
export interface RelayProcesses {
  readonly each: readonly RelayProcess[];
  /** Resolves when the condition holds. It is checked whenever a relay has sent messages. */
  until(condition: (each: readonly RelayProcess[]) => boolean, limitMs: number): Promise<void>;
  stop(): Promise<readonly { readonly peakMegabytes: number }[]>;
}

export function startRelayProcesses(count: number, order: RelayOrder, ending: Ending): RelayProcesses {
  let look = () => {};
  const each = Array.from({ length: count }, () => startRelayProcess(order, ending, () => look()));
  return {
    each,
    until(condition, limitMs) {
      const holds = new Promise<void>((resolve) => {
        look = () => condition(each) && resolve();
        look();
      });
      return within(limitMs, () => `sent by each process: ${each.map(({ sent }) => sent).join(", ")}`, holds);
    },
    stop: () => Promise.all(each.map((process) => process.stop())),
  };
}
