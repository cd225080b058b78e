import {
  type Arrival,
  type Aside,
  asideSettlement,
  type Inbox,
  inboxOf,
  type Remembered,
  type RememberOptions,
} from "postbox/store";
import { boxIn, type JsonDatabase } from "./database.js";
import type { JsonTransaction } from "./json-transaction.js";
import { append, jsonOf, seen, settle } from "./rows.js";
import type { BoxState } from "./state.js";

/** The inboxes of all consumers. What each remembers is part of its box. */
export function jsonInbox(database: JsonDatabase): Inbox<JsonTransaction> {
  return {
    /** One transaction at a time: no other can remember the same message meanwhile. */
    async remember(tx, arrival, options) {
      const now = Date.now();
      return remember(boxIn(database.draftOf(tx), inboxOf(arrival.consumer)), arrival, options, now, now);
    },

    keep: (arrivals, options, signal) =>
      database.transact((draft) => {
        const now = Date.now();
        return arrivals.map((arrival) => {
          const box = boxIn(draft, inboxOf(arrival.consumer));
          const remembered = remember(box, arrival, options, now);
          if (remembered === "new") append(box, jsonOf(arrival.message), now);
          return remembered;
        });
      }, signal),

    setAside: (arrival, aside, options, signal) =>
      database.change(inboxOf(arrival.consumer), (box, now) => setAside(box, arrival, aside, options, now), signal),

    /** What was handled is settled as sent, so that those that wait behind it go on. */
    async handled(tx, { consumer, id }, row, epoch) {
      const box = boxIn(database.draftOf(tx), inboxOf(consumer));
      if (box.lanes[row.lane]?.epoch !== epoch) return false;
      const now = Date.now();
      if (settle(box, [{ row, to: "sent" }], now, { keep: true }).rows.length === 0) return false;
      box.remembered.set(id, { ...(box.remembered.get(id) ?? { since: now }), handledAt: now });
      return true;
    },
  };
}

function setAside(box: BoxState, arrival: Arrival, aside: Aside, options: RememberOptions, now: number): Remembered {
  const remembered = remember(box, arrival, options, now);
  if (remembered !== "new" && !(aside.to === "parked" && aside.anyway)) return remembered;
  const stored = append(box, jsonOf(arrival.message), now);
  settle(box, [asideSettlement(seen(box, stored), aside, box.holds.values())], now);
  return remembered;
}

function remember(
  { remembered, forgottenUntil }: BoxState,
  { id, hash, message, storePayload }: Arrival,
  { retentionMs }: RememberOptions,
  now: number,
  handledAt?: number,
): Remembered {
  const known = remembered.get(id);
  if (known !== undefined) {
    const differs = hash !== undefined && known.hash !== undefined && hash !== known.hash;
    return differs ? "differs" : "duplicate";
  }
  const time = Date.parse(message.time ?? "");
  if (time < Math.max(now - retentionMs, forgottenUntil)) return "too-old";
  const since = Number.isNaN(time) ? now : Math.max(time, now);
  remembered.set(id, { since, hash, handledAt, data: storePayload ? jsonOf(message).data : undefined });
  return "new";
}
