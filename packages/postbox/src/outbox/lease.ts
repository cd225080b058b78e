import type { Runtime } from "../internal/runtime.js";
import type { Box, Lane } from "../store.js";

/** The right to send a box's rows, for a while. */
export interface Lease {
  readonly lanes: readonly Lane[];
  /** Whether the lease certainly still stands. Ask before every send; settling is fenced by the store itself. */
  trusted(): boolean;
  /** Whether somebody else is known to have the lanes. */
  lost(): boolean;
  /** Somebody else has the lanes now. */
  lose(): void;
  /** Stops renewing and gives the lanes back, unless they are lost. */
  end(): Promise<void>;
}

/**
 * Takes the box's lanes and keeps renewing them; undefined while somebody else has them. Trust is counted on the
 * monotonic clock from *before* each renewal was sent: a slow answer must not stretch it, and the host's clock may jump.
 */
export async function acquireLease(
  box: Box,
  owner: string,
  leaseMs: number,
  runtime: Runtime,
): Promise<Lease | undefined> {
  let trustedUntil = runtime.monotonic() + leaseMs;
  const lanes = await box.own(owner, leaseMs);
  if (lanes.length === 0) return undefined;

  let state: "ours" | "lost" | "ended" = "ours";
  let cancelRenewal = () => {};
  const renewIn = (ms: number) => {
    cancelRenewal = runtime.schedule(() => void renew(), ms);
  };
  const renew = async (): Promise<void> => {
    const sentAt = runtime.monotonic();
    try {
      const renewed = await box.renew(owner, leaseMs);
      if (state !== "ours") return;
      if (!renewed) state = "lost";
      else {
        trustedUntil = sentAt + leaseMs;
        renewIn(leaseMs / 3);
      }
    } catch {
      // The database does not answer: trust runs out by itself unless a later try succeeds.
      if (state === "ours") renewIn(leaseMs / 10);
    }
  };
  renewIn(leaseMs / 3);

  return {
    lanes,
    trusted: () => state === "ours" && runtime.monotonic() < trustedUntil,
    lost: () => state === "lost",
    lose() {
      if (state === "ours") state = "lost";
      cancelRenewal();
    },
    async end() {
      const wasOurs = state === "ours";
      state = "ended";
      cancelRenewal();
      if (wasOurs) await box.release(owner);
    },
  };
}
