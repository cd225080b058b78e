import type { Message } from "../message/message.js";
import type { Claim } from "../outbox/source.js";

/** Which messages came out of a box, and from which row. A message is known by its object, which nobody copies on its way. */
export interface Claims {
  add(claim: Claim): void;
  of(message: Message): Claim | undefined;
}

export function createClaims(): Claims {
  const claims = new WeakMap<Message, Claim>();
  return {
    add: (claim) => void claims.set(claim.row.message, claim),
    of: (message) => claims.get(message),
  };
}
