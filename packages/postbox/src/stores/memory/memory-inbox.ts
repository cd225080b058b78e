import { PostboxError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import { withTimeout } from "../../internal/with-timeout.js";
import type { Arrival, Inbox, Remembered, RememberOptions } from "../../store.js";
import { inboxOf } from "../../store.js";
import { busyError } from "../inbox-errors.js";
import type { MemoryBox } from "./memory-box.js";
import type { StoredRow } from "./memory-lane.js";
import { type MemoryTransaction, OpenTransaction } from "./memory-transaction.js";
import type { MemoryWaits } from "./memory-waits.js";

interface Memory {
  readonly by: OpenTransaction;
  readonly arrival: Arrival;
  readonly position: number;
  /** From when on retention counts: the later of arrival and its own time. */
  readonly since: number;
  readonly receivedAt: number;
  processedAt?: number;
}

export interface MemoryInboxOptions {
  readonly waits: MemoryWaits;
  readonly runtime: Runtime;
  /** The database's clock. */
  now(): number;
  box(name: string): MemoryBox;
  open(handle: MemoryTransaction): OpenTransaction;
}

/**
 * What consumers have taken over: a unique index on (consumer, id) with the locks that a database puts on it. A row that is not
 * committed yet makes the next one to insert it wait until its transaction has ended.
 */
export class MemoryInbox {
  readonly #rows = new Map<string, Memory>();
  /** Of each consumer, before when it may have forgotten something. */
  readonly #forgotten = new Map<string, number>();
  #lastPosition = 0;

  /** The seam, for one store. */
  on({ waits, runtime, now, box, open }: MemoryInboxOptions): Inbox<MemoryTransaction> {
    /** One row, as a database inserts it. */
    const insert = async (tx: OpenTransaction, arrival: Arrival, options: RememberOptions): Promise<Remembered> => {
      const { message, storePayload = false } = arrival;
      const name = nameOf(arrival);
      const parsed = message.time === undefined ? Number.NaN : Date.parse(message.time);
      const time = Number.isNaN(parsed) ? undefined : parsed;
      const since = Math.max(now() - options.retentionMs, this.#forgotten.get(arrival.consumer) ?? 0);
      const old = time !== undefined && time < since;
      for (;;) {
        const found = this.#rows.get(name);
        if (found === undefined) {
          if (old) return "too-old";
          const data = storePayload ? message.data : new Uint8Array();
          const kept = { ...arrival, message: { ...message, data } };
          const position = ++this.#lastPosition;
          this.#rows.set(name, {
            by: tx,
            arrival: kept,
            position,
            since: Math.max(time ?? 0, now()),
            receivedAt: now(),
          });
          tx.onRollback(() => this.#rows.delete(name));
          return "new";
        }
        if (found.by === tx || found.by.committed) {
          const differs = arrival.hash !== undefined && (found.arrival.hash ?? arrival.hash) !== arrival.hash;
          return differs ? "differs" : "duplicate";
        }
        const busy = () => {
          tx.rollback();
          return busyError(arrival, options.lockTimeoutMs);
        };
        await withTimeout(runtime, options.lockTimeoutMs, busy, () => waits.untilEnded(found.by, tx));
      }
    };
    /** A transaction of its own. */
    const inOne = async <R>(work: (tx: OpenTransaction) => Promise<R>): Promise<R> => {
      const tx = new OpenTransaction(this);
      try {
        const result = await work(tx);
        tx.commit();
        return result;
      } catch (error) {
        tx.rollback();
        throw error;
      }
    };
    const done = (arrival: Arrival) => {
      const row = this.#rows.get(nameOf(arrival));
      if (row === undefined) return;
      row.processedAt = now();
    };

    return {
      async remember(handle, arrival, options) {
        const tx = open(handle);
        const remembered = await insert(tx, arrival, options);
        if (remembered === "new") done(arrival);
        return remembered;
      },

      keep: (arrivals, options) =>
        inOne(async (tx) => {
          const found: Remembered[] = [];
          const byId = (a: number, b: number) => ((arrivals[a] as Arrival).id < (arrivals[b] as Arrival).id ? -1 : 1);
          for (const index of [...arrivals.keys()].sort(byId)) {
            found[index] = await insert(tx, arrivals[index] as Arrival, options);
          }
          const [first] = arrivals;
          const fresh = arrivals.filter((_, index) => found[index] === "new");
          if (first !== undefined) {
            tx.stage(
              box(inboxOf(first.consumer)),
              fresh.map(({ message }) => message),
            );
          }
          return found;
        }),

      setAside: (arrival, aside, options) =>
        inOne(async (tx) => {
          const remembered = await insert(tx, arrival, options);
          const anyway = aside.to === "parked" && aside.anyway === true;
          if (remembered === "new" || anyway) {
            tx.defer(() => box(inboxOf(arrival.consumer)).setAside(arrival.message, aside));
          }
          return remembered;
        }),

      async handled(handle, arrival, row, epoch) {
        const tx = open(handle);
        const from = box(inboxOf(arrival.consumer));
        if (!from.has(row, epoch)) return false;
        tx.beforeCommit(() => {
          if (!from.has(row, epoch))
            throw new PostboxError("delivery-revoked", `another process owns the row of ${row.message.id}`);
        });
        tx.defer(() => {
          from.finish(row);
          done(arrival);
        });
        return true;
      },
    };
  }

  /** Forgets what a consumer has taken over before that time. Answers with how many these were. */
  forget(consumer: string, before: number): number {
    this.#forgotten.set(consumer, Math.max(before, this.#forgotten.get(consumer) ?? 0));
    const old = [...this.#rows].filter(
      ([, { by, arrival, since }]) => by.committed && arrival.consumer === consumer && since < before,
    );
    for (const [name] of old) this.#rows.delete(name);
    return old.length;
  }

  everything(): readonly unknown[] {
    return [...this.#rows].filter(([, { by }]) => by.committed).map(([name, { by: _, ...row }]) => [name, row]);
  }

  /** What one consumer has handled, as far as it is remembered. */
  processed(consumer: string): StoredRow[] {
    return [...this.#rows.values()].flatMap(({ by, arrival, position, receivedAt, processedAt }) => {
      if (!by.committed || arrival.consumer !== consumer || processedAt === undefined) return [];
      const { message } = arrival;
      const times = { createdAt: receivedAt, updatedAt: processedAt };
      return [{ lane: 0, position, message, attempts: 1, crashes: 0, failures: [], ...times }];
    });
  }
}

function nameOf({ consumer, id }: Arrival): string {
  return JSON.stringify([consumer, id]);
}
