import type { Ending } from "../ending.js";
import { within } from "../time-limit.js";
import { type RelayProcess, startRelayProcess } from "./relay-process.js";
import type { RelayOrder } from "./relay-program.js";

/** Some relays on one box, each in a process of its own. */
export interface RelayProcesses {
  readonly each: readonly RelayProcess[];
  /** Resolves when the condition holds; it is looked at whenever one of them has sent something. */
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
