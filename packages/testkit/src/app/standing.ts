import { inboxOf, PostboxError, type Store } from "postbox";
import type { StoredMessage } from "postbox/admin";
import type { MemoryBroker } from "postbox/memory";
import type { UnhandledMessage } from "./not-settled-error.js";
import type { Standing } from "./settle.js";
import type { WatchedReceiver } from "./watched-receiver.js";

export interface Places {
  readonly store: Pick<Store, "admin">;
  readonly broker: MemoryBroker;
  readonly receiver: WatchedReceiver;
  /** By the store's clock. */
  now(): number;
}

/** The part of one box or queue. */
interface Part extends Omit<Standing, "reported"> {
  /** Identifies each of its parked messages. */
  readonly parked: readonly unknown[];
}

/** Reads the outbox, all queues and all inboxes. A parked message is reported once, since it will not continue. */
export function standingOf({ store, broker, receiver, now }: Places): () => Promise<Standing> {
  const reported = new Set<unknown>();

  async function inBox(box: string, consumer?: string): Promise<Part> {
    const parked: unknown[] = [];
    const busy: string[] = [];
    const unhandled: UnhandledMessage[] = [];
    const rows = await unfinished(store, box);
    for (const row of rows) {
      const retryInMs = row.dueAt === undefined ? undefined : row.dueAt.getTime() - now();
      const isDue = row.status === "pending" || (retryInMs !== undefined && retryInMs <= 0 && row.status !== "parked");
      if (isDue) busy.push(`${row.type} (${row.id}) is in ${box === "outbox" ? "the outbox" : `the box ${box}`}`);
      else if (row.status === "waiting") unhandled.push(unhandledRow(row, consumer, retryInMs));
      else if (row.status === "parked") {
        const mark = `${box} ${row.position} ${row.updatedAt.getTime()}`;
        if (reported.has(mark)) continue;
        parked.push(mark);
        unhandled.push(unhandledRow(row, consumer));
      }
    }
    return { busy, unhandled, parked };
  }

  function inQueue(consumer: string): Part {
    const retries = receiver.retries(consumer);
    const later = retries.filter(({ dueAt }) => dueAt > now());
    const parked = broker.parked(consumer).filter((each) => !reported.has(each));
    const ready = broker.depth(consumer) - later.length;
    return {
      parked,
      busy: ready > 0 ? [`${ready} in the queue of consumer ${consumer}`] : [],
      unhandled: [
        ...later.map(({ message: { type, id }, dueAt, reason }) => {
          const error = reason && { error: reason.message };
          return { status: "retrying" as const, consumer, type, id, ...error, retryInMs: dueAt - now() };
        }),
        ...parked.map(({ message: { type, id }, reason }) => {
          return { status: "parked" as const, consumer, type, id, error: reason.message };
        }),
      ],
    };
  }

  return async () => {
    const consumers = [...receiver.consumers];
    const parts = [await inBox("outbox")];
    for (const consumer of consumers) parts.push(await inBox(inboxOf(consumer), consumer));
    // Read last: messages move from boxes to queues, and could otherwise be missed in both.
    for (const consumer of consumers) parts.push(inQueue(consumer));
    return {
      busy: parts.flatMap(({ busy }) => busy),
      unhandled: parts.flatMap(({ unhandled }) => unhandled),
      reported() {
        for (const mark of parts.flatMap(({ parked }) => parked)) reported.add(mark);
      },
    };
  };
}

/** The messages in the box that are not done. A consumer without an inbox has no box. */
async function unfinished({ admin }: Places["store"], box: string): Promise<readonly StoredMessage[]> {
  const status = ["pending", "waiting", "scheduled", "parked"] as const;
  try {
    return (await admin.list({ box, status, limit: 1_000 })).messages;
  } catch (error) {
    if (box !== "outbox" && error instanceof PostboxError && error.code === "option-invalid") return [];
    throw error;
  }
}

function unhandledRow(row: StoredMessage, consumer?: string, retryInMs?: number): UnhandledMessage {
  const { type, id, lastError } = row;
  const failed = lastError !== undefined;
  return {
    status: row.status === "parked" ? "parked" : failed ? "retrying" : "waiting",
    ...(consumer !== undefined && { consumer }),
    type,
    id,
    ...(failed && { error: lastError }),
    ...(retryInMs !== undefined && { retryInMs }),
  };
}
