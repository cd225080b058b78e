import { manualRuntime } from "@postbox/testkit";
import { leaseMs } from "./part.js";

/**
 * `kill`: SIGKILL in the middle of its work, and another process takes its place · `pause`: SIGSTOP likewise, beyond
 * the lease, then SIGCONT · `cut`: its connections to the broker, for a while · `deafen`: nothing that is sent there
 * arrives, then they are cut · `terminate`: its sessions of the database.
 */
type FaultKind = "kill" | "pause" | "cut" | "deafen" | "terminate";

export interface Fault {
  readonly kind: FaultKind;
  /** Whom it befalls. */
  readonly whom: string;
  /** When so much of this is done, from 0 to 1: what the broker has accepted, or what has had its effects. */
  readonly after: number;
  readonly of: "accepted" | "effects";
  /** How long it lasts. */
  readonly forMs: number;
}

const kinds: Readonly<Record<FaultKind, readonly string[]>> = {
  kill: ["producer", "relay", "relay", "billing", "billing", "billing", "ledger", "ledger", "ledger"],
  pause: ["relay", "billing", "ledger"],
  cut: ["relay", "billing", "ledger"],
  deafen: ["relay", "ledger"],
  terminate: ["producer", "relay", "billing", "ledger"],
};

/**
 * Every kind befalls every role that it can at least once, one process of two; all at moments that the seed decides.
 */
export function planOf(seed: number): Fault[] {
  const { random } = manualRuntime({ seed });
  const faults: Fault[] = [];
  for (const kind of Object.keys(kinds) as FaultKind[]) {
    for (const role of kinds[kind]) {
      const whom = `${role}-${random() < 0.5 ? 0 : 1}`;
      // Before the first one, nothing is excused.
      const after = 0.08 + random() * 0.82;
      // Whoever is to be caught at work: what comes to `ledger` is stored long before it has effects.
      const of = role === "billing" || (role === "ledger" && random() < 0.3) ? "effects" : "accepted";
      const forMs = kind === "pause" ? leaseMs * (1.1 + random() * 0.6) : random() * 1_500;
      faults.push({ kind, whom, after, of, forMs });
    }
  }
  return faults.sort((a, b) => a.after - b.after);
}
