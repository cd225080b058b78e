import { PostboxError } from "../../errors.js";
import { messageBytes } from "../../message/attributes.js";
import type { Message } from "../../message/message.js";
import { isTransient } from "../../router/is-transient.js";
import { settleOnce } from "../../settle-once.js";
import type { Delivery } from "../../transport.js";
import { Room, type RoomLimits } from "../room.js";
import { createWatermark, type Watermark } from "../watermark.js";
import type { ReceivedRecord, TopicPartition } from "./client.js";

export interface StreamListener {
  deliver(delivery: Delivery): Promise<void>;
  /** Reads a record, or throws if it is no message. */
  read(record: ReceivedRecord): Message;
  /** Stores a record that cannot be delivered, with the reason. Resolves when it is stored. */
  park(record: ReceivedRecord, reason: Error): Promise<void>;
  /** A delivery was settled or taken. */
  changed(): void;
  /** It should read on, and did not have to before. */
  hungry(): void;
  /** There is something to commit: soon, or before anything else is delivered. */
  dirty(atOnce: boolean): void;
  failed(cause: unknown): void;
}

/** What a group has stored of a partition. */
export interface Committed {
  /** Everything below is done. */
  readonly offset: number;
  /** Everything below was delivered once. */
  readonly handedOver: number;
}

/** A record that was delivered and is not done. */
interface Open {
  readonly record: ReceivedRecord;
  readonly bytes: number;
  /** An error if the record is no message. */
  readonly read: Message | Error;
  attempt: number;
}

/** Records that wait here to be delivered, in bytes and in number. Below half of it, more are read. */
const mostBuffered = { bytes: 2 * 1024 * 1024, records: 4_000 };
/** How far deliveries may run ahead of the first one that is not done. */
const furthest = 20_000;
const recordOverhead = 100;

/**
 * A partition while it is assigned to this member: from the committed offset, until it is revoked. Before a record is
 * delivered, its offset is committed as handed over, so that it is flagged if this process ends without an outcome.
 */
export class PartitionStream {
  readonly of: TopicPartition;
  readonly name: string;
  readonly #listener: StreamListener;
  readonly #room: Room;
  readonly #watermark: Watermark;
  /** Records below this offset were delivered before this stream began. */
  readonly #flaggedBelow: number;
  readonly #revoked = new AbortController();
  #buffer: ReceivedRecord[] = [];
  #head = 0;
  #bufferedBytes = 0;
  /** The first one of the buffer, once it was read. */
  #first: Open | undefined;
  /** The next offset to read. */
  #next: number;
  /** Released offsets in ascending order. They are delivered again before anything later. */
  readonly #again: Open[] = [];
  readonly #retries = new Set<() => void>();
  #open = 0;
  #committed: Committed;
  #announced: number;
  #handingOver = false;
  #stopped = false;

  constructor(of: TopicPartition, from: Committed, limits: RoomLimits, listener: StreamListener) {
    this.of = of;
    this.name = `${of.topic}/${of.partition}`;
    this.#listener = listener;
    this.#room = new Room(limits);
    this.#watermark = createWatermark(from.offset);
    this.#flaggedBelow = from.handedOver;
    this.#committed = from;
    this.#announced = from.handedOver;
    this.#next = from.offset;
  }

  /** Whether a delivery is not settled, or not taken yet. */
  get busy(): boolean {
    return this.#open > 0 || this.#handingOver;
  }

  get next(): number {
    return this.#next;
  }

  /** Whether it should read on. */
  get hungry(): boolean {
    if (this.#stopped) return false;
    return (
      this.#bufferedBytes * 2 < mostBuffered.bytes && (this.#buffer.length - this.#head) * 2 < mostBuffered.records
    );
  }

  /** What a commit should store now; undefined if it is stored. */
  get uncommitted(): Committed | undefined {
    const { offset, handedOver } = this.#committed;
    // Nothing is open: what was read and is not visible, such as markers of transactions, is done as well.
    const isIdle = this.#watermark.size === 0 && this.#head === this.#buffer.length;
    const at = isIdle ? this.#next : this.#watermark.at;
    const told = this.#stopped && this.#open === 0 ? at : Math.max(this.#announced, at);
    return at === offset && told === handedOver ? undefined : { offset: at, handedOver: told };
  }

  committed(stored: Committed): void {
    this.#committed = stored;
    this.#handOver();
  }

  /** Records from `next` on. */
  append(records: readonly ReceivedRecord[], next: number): void {
    if (this.#stopped) return;
    for (const record of records) {
      if (record.offset < this.#next) continue;
      this.#buffer.push(record);
      this.#bufferedBytes += sizeOf(record);
    }
    this.#next = Math.max(this.#next, next);
    if (records.length === 0) this.#listener.dirty(false);
    this.#handOver();
  }

  /** The records between no longer exist. */
  skipTo(offset: number): void {
    this.#next = Math.max(this.#next, offset);
  }

  /** Delivers nothing more. Later settlements still count. */
  stop(): void {
    this.#stopped = true;
    for (const cancel of this.#retries) cancel();
    this.#retries.clear();
    // What was read and not delivered is not done: a commit must not pass it.
    this.#next = this.#buffer[this.#head]?.offset ?? this.#next;
    this.#buffer = [];
    this.#head = 0;
    this.#bufferedBytes = 0;
    this.#first = undefined;
  }

  /** Another member has it, or may have it: later settlements have no effect. */
  revoke(why: string): void {
    this.stop();
    this.#revoked.abort(new PostboxError("delivery-revoked", why));
  }

  #handOver(): void {
    if (this.#handingOver || this.#stopped) return;
    const again = this.#again[0];
    const open = again ?? this.#peek();
    if (open === undefined || !this.#room.fits(open.bytes)) return;
    if (again !== undefined) this.#again.shift();
    else {
      if (this.#watermark.size >= furthest) return;
      const { offset } = open.record;
      if (offset >= this.#committed.handedOver) {
        // Together with all that was read, so that few commits are needed.
        this.#announced = this.#next;
        this.#listener.dirty(true);
        return;
      }
      this.#take(open);
      this.#watermark.start(offset);
    }
    this.#give(open);
  }

  #peek(): Open | undefined {
    const record = this.#buffer[this.#head];
    if (record === undefined || this.#first !== undefined) return this.#first;
    let read: Message | Error;
    try {
      read = this.#listener.read(record);
    } catch (error) {
      read = error as Error;
    }
    this.#first = { record, read, bytes: read instanceof Error ? sizeOf(record) : messageBytes(read), attempt: 1 };
    return this.#first;
  }

  /** Takes the first record from the buffer. */
  #take({ record }: Open): void {
    const wasHungry = this.hungry;
    this.#first = undefined;
    this.#head++;
    this.#bufferedBytes -= sizeOf(record);
    if (this.#head > 1024 && this.#head * 2 > this.#buffer.length) {
      this.#buffer = this.#buffer.slice(this.#head);
      this.#head = 0;
    }
    if (!wasHungry && this.hungry) this.#listener.hungry();
  }

  #give(open: Open): void {
    const { read } = open;
    this.#room.take(open.bytes);
    this.#open++;
    if (read instanceof Error) {
      void this.#parkUnread(open, read);
      queueMicrotask(() => this.#handOver());
      return;
    }
    this.#handingOver = true;
    const taken = (async () => this.#listener.deliver(this.#delivery(open, read)))();
    taken
      .catch((cause: unknown) => this.#listener.failed(cause))
      .finally(() => {
        this.#handingOver = false;
        this.#handOver();
        this.#listener.changed();
      });
  }

  #delivery(open: Open, message: Message): Delivery {
    const { signal } = this.#revoked;
    const { offset } = open.record;
    const once = settleOnce(message.id);
    const settle = async (verb: string, effect: () => Promise<void> | void): Promise<void> => {
      once(verb);
      try {
        if (!signal.aborted) await effect();
      } finally {
        this.#free(open);
      }
    };
    return {
      message,
      attempt: open.attempt,
      stream: this.name,
      signal,
      ...(offset < this.#flaggedBelow && { redelivered: true }),
      origin: { partition: this.name, offset: String(offset) },
      ack: () => settle("ack", () => this.#finish(offset)),
      release: () => settle("release", () => this.#return(open)),
      retry: (delayMs, reason) =>
        settle("retry", () => {
          if (!isTransient(reason)) open.attempt++;
          this.#later(open, delayMs);
        }),
      park: (reason) =>
        settle("park", async () => {
          try {
            await this.#listener.park(open.record, reason);
          } catch (error) {
            // It could not be stored there, so it stays here.
            this.#return(open);
            throw error;
          }
          this.#finish(offset);
        }),
    };
  }

  #free({ bytes }: Open): void {
    this.#open--;
    this.#room.free(bytes);
    this.#handOver();
    this.#listener.changed();
  }

  #finish(offset: number): void {
    if (this.#revoked.signal.aborted) return;
    this.#watermark.finish(offset);
    this.#listener.dirty(false);
  }

  #return(open: Open): void {
    const place = this.#again.findIndex(({ record }) => record.offset > open.record.offset);
    this.#again.splice(place === -1 ? this.#again.length : place, 0, open);
  }

  #later(open: Open, delayMs: number): void {
    if (this.#stopped) return;
    const timer = setTimeout(() => {
      this.#retries.delete(cancel);
      this.#return(open);
      this.#handOver();
    }, delayMs);
    const cancel = () => clearTimeout(timer);
    this.#retries.add(cancel);
  }

  /** It blocks the watermark until it is stored elsewhere, and no other record. */
  async #parkUnread(open: Open, reason: Error): Promise<void> {
    try {
      if (!this.#revoked.signal.aborted) await this.#listener.park(open.record, reason);
      this.#finish(open.record.offset);
    } catch {
      // The listener has reported it.
      this.#later(open, 5_000);
    }
    this.#free(open);
  }
}

function sizeOf({ key, value, headers }: ReceivedRecord): number {
  let size = recordOverhead + (key?.length ?? 0) + (value?.length ?? 0);
  for (const name in headers) size += name.length + (headers[name] as Uint8Array).length;
  return size;
}
