import { type Codec, type DataOut, dataOf, type EventDefinition, type Message, type Store } from "postbox";
import type { StoredMessage } from "postbox/admin";

/** Reads the published messages, in the order in which they were stored. Only committed messages are included. */
export interface ReadPublished {
  /** The data of the messages of one event, as its handlers get them. */
  <E extends EventDefinition>(event: E): Promise<DataOut<E>[]>;
  /** All messages. */
  (): Promise<Message[]>;
}

/** A store with any type of transaction. */
type StoreAdmin = Pick<Store, "admin">;

/** What `publishedBy` returns. */
export interface PublishedBy<R> {
  /** What `work` returned. */
  readonly result: R;
  /** The messages that its transactions have published and committed. */
  readonly published: ReadPublished;
}

/**
 * Runs `work` and returns what it published into the outbox of `store`, in any number of its own transactions. Messages
 * of transactions that rolled back are not included. Rejects if `work` does. Meanwhile, nothing else may publish, and
 * no relay may run that deletes what it sent: `testMessaging` runs none outside of `settled()`.
 *
 * @example
 * ```ts
 * const { published } = await publishedBy(store, () => placeOrder("1"));
 * expect(await published(OrderPlaced)).toHaveLength(1);
 * ```
 */
export async function publishedBy<R>(store: StoreAdmin, work: () => Promise<R>): Promise<PublishedBy<R>> {
  const before = new Set((await outboxRows(store)).map(placeOf));
  const result = await work();
  const rows = (await outboxRows(store)).filter((row) => !before.has(placeOf(row)));
  const messages = await messagesOf(store, rows);
  return { result, published: reader(async () => messages) };
}

/** All messages in the outbox of the store, sent or not. */
export function publishedTo(store: StoreAdmin, codecs: readonly Codec[]): ReadPublished {
  return reader(async () => messagesOf(store, await outboxRows(store)), codecs);
}

function reader(messages: () => Promise<readonly Message[]>, codecs?: readonly Codec[]): ReadPublished {
  return (async (event?: EventDefinition) => {
    const all = await messages();
    if (event === undefined) return [...all];
    const own = all.filter(({ type }) => type === event.type);
    return Promise.all(own.map((message) => dataOf(event, message, codecs)));
  }) as ReadPublished;
}

async function outboxRows({ admin }: StoreAdmin): Promise<StoredMessage[]> {
  const rows: StoredMessage[] = [];
  let after: string | undefined;
  do {
    const page = await admin.list({ limit: 1_000, after });
    rows.push(...page.messages);
    after = page.next;
  } while (after !== undefined);
  return rows.sort((a, b) => a.createdAt.getTime() - b.createdAt.getTime() || a.position - b.position);
}

/** Scheduled messages have positions of their own. */
function placeOf({ status, position }: StoredMessage): string {
  return `${status === "scheduled" ? "scheduled" : "stored"} ${position}`;
}

async function messagesOf({ admin }: StoreAdmin, rows: readonly StoredMessage[]): Promise<Message[]> {
  const messages: Message[] = [];
  for (const row of rows) {
    const found = (await admin.get(row.id)).find((each) => placeOf(each) === placeOf(row));
    if (found !== undefined) messages.push(found.message);
  }
  return messages;
}
