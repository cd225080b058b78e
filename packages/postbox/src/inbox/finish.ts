import { PostboxError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import type { Claim } from "../relay/sending/source.js";
import type { BaseContext, Outputs } from "../router/context.js";
import { type Arrival, type Inbox, inboxOf } from "../store.js";

/** The row that a message came from, if it came from its own consumer's box. */
export function claimOf({ kept, consumer }: BaseContext): Claim | undefined {
  return kept?.box === inboxOf(consumer) ? (kept as Claim) : undefined;
}

/**
 * Handles a message from the box, and removes it in the same transaction. Last, since the removal locks its lane, and
 * another relay that takes the lane over would wait for this handler.
 */
export async function finish<Tx>(
  inbox: Inbox<Tx>,
  tx: Tx,
  arrival: Arrival,
  claim: Claim,
  runtime: Runtime,
  next: () => Promise<Outputs>,
): Promise<Outputs> {
  claim.handled = claim.committed = false;
  const outputs = await next();
  if (!(await inbox.handled(tx, arrival, claim.row, claim.epoch))) {
    throw new PostboxError(
      "delivery-revoked",
      `message ${arrival.id} belongs to another process now, which handles it: the lease expired, or an operator ` +
        "has moved it; " +
        "this transaction rolls back",
    );
  }
  if (runtime.failpoint) await runtime.failpoint("inbox.finished");
  claim.handled = true;
  return outputs;
}
