import { PostboxError } from "../../errors.js";
import { withTimeout } from "../../internal/with-timeout.js";
import { type Arrival, type Inbox, inboxOf, type Remembered, type RememberOptions } from "../../store.js";
import { busyError } from "../inbox-errors.js";
import { sameOrNot } from "../rows/remembered-ids.js";
import type { MemoryData } from "./memory-database.js";
import { type MemoryTransaction, OpenTransaction } from "./memory-transaction.js";

/** A message that a transaction has accepted but not committed. */
export interface Uncommitted {
  readonly by: OpenTransaction;
  readonly arrival: Arrival;
}

/**
 * The inboxes, with the locks of a unique index on (consumer, id): an uncommitted row makes the next transaction that
 * inserts the same row wait until the first one ends.
 */
export function memoryInbox(
  data: MemoryData,
  open: (handle: MemoryTransaction) => OpenTransaction,
): Inbox<MemoryTransaction> {
  const { rows, uncommitted, waits } = data;
  const boxOf = ({ consumer }: Pick<Arrival, "consumer">) => rows.box(inboxOf(consumer));

  /** Inserts one row as a database does. */
  async function insert(tx: OpenTransaction, arrival: Arrival, options: RememberOptions): Promise<Remembered> {
    const name = JSON.stringify([arrival.consumer, arrival.id]);
    for (;;) {
      const known = uncommitted.get(name);
      if (known?.by === tx) return sameOrNot(known.arrival.hash, arrival.hash);
      if (known?.by.open !== true) break;
      const busy = () => {
        tx.rollback();
        return busyError(arrival, options.lockTimeoutMs);
      };
      await withTimeout(data.runtime, options.lockTimeoutMs, busy, () => waits.untilEnded(known.by, tx));
    }
    const { remembered } = rows.look(inboxOf(arrival.consumer));
    const found = remembered.find(arrival, options.retentionMs, rows.now());
    if (found !== "new") return found;
    const inserted = { by: tx, arrival };
    uncommitted.set(name, inserted);
    tx.onCommit(() => boxOf(arrival).remembered.add(arrival, rows.now()));
    void tx.ended.then(() => uncommitted.get(name) === inserted && uncommitted.delete(name));
    return "new";
  }

  /** Runs `work` in a transaction of its own. */
  async function inOne<R>(work: (tx: OpenTransaction) => Promise<R>): Promise<R> {
    const tx = new OpenTransaction(data);
    try {
      const result = await work(tx);
      tx.commit();
      return result;
    } catch (error) {
      tx.rollback();
      throw error;
    }
  }

  return {
    async remember(handle, arrival, options) {
      const tx = open(handle);
      const remembered = await insert(tx, arrival, options);
      if (remembered === "new") tx.onCommit(() => boxOf(arrival).remembered.handled(arrival.id, rows.now()));
      return remembered;
    },

    keep: (arrivals, options) =>
      inOne(async (tx) => {
        const found: Remembered[] = [];
        const byId = (a: number, b: number) => ((arrivals[a] as Arrival).id < (arrivals[b] as Arrival).id ? -1 : 1);
        for (const index of [...arrivals.keys()].sort(byId)) {
          found[index] = await insert(tx, arrivals[index] as Arrival, options);
        }
        const fresh = arrivals.filter((_, index) => found[index] === "new").map(({ message }) => message);
        const [first] = arrivals;
        if (first !== undefined) tx.stage(boxOf(first), fresh);
        return found;
      }),

    setAside: (arrival, aside, options) =>
      inOne(async (tx) => {
        const remembered = await insert(tx, arrival, options);
        const anyway = aside.to === "parked" && aside.anyway === true;
        if (remembered === "new" || anyway) tx.onCommit(() => boxOf(arrival).setAside(arrival.message, aside));
        return remembered;
      }),

    async handled(handle, arrival, row, epoch) {
      const tx = open(handle);
      const from = boxOf(arrival);
      if (!from.has(row, epoch)) return false;
      tx.beforeCommit(() => {
        if (!from.has(row, epoch))
          throw new PostboxError("delivery-revoked", `another process owns the row of ${row.message.id}`);
      });
      tx.onCommit(() => rows.handled(arrival, row, epoch));
      return true;
    },
  };
}
