import { type Codec, type DataOut, dataOf, type EventDefinition, type Message, type Store } from "postbox";
import type { StoredMessage } from "postbox/admin";

/** Reads what was published, in the order in which it was stored. Only what is committed is there to read. */
export interface ReadPublished {
  /** The data of the messages of one event, as its handlers get them. */
  <E extends EventDefinition>(event: E): Promise<DataOut<E>[]>;
  /** All messages. */
  (): Promise<Message[]>;
}

/** Of a store, whatever its transactions are. */
type StoreAdmin = Pick<Store, "admin">;

export interface PublishedBy<R> {
  /** What `work` returned. */
  readonly result: R;
  /** What its transactions have published and committed. */
  readonly published: ReadPublished;
}

/**
 * Runs `work` and tells what it published into the outbox of `store`, through any number of transactions of its own.
 * Messages of a transaction that rolled back are not among them. Rejects if `work` does. Nothing else may publish
 * meanwhile, and no relay may run that deletes what it sent: `testMessaging` runs none outside of `settled()`.
 */
export async function publishedBy<R>(store: StoreAdmin, work: () => Promise<R>): Promise<PublishedBy<R>> {
  const before = new Set((await outboxRows(store)).map(placeOf));
  const result = await work();
  const rows = (await outboxRows(store)).filter((row) => !before.has(placeOf(row)));
  const messages = await messagesOf(store, rows);
  return { result, published: reader(async () => messages) };
}

/** Everything that the outbox of the store has, sent or not. */
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

/** What is scheduled is numbered by itself. */
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
