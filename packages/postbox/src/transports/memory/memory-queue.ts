import type { Message } from "../../message/message.js";

/** A message in a queue. */
export interface QueueEntry {
  /** Its place: lower ones are handed over first. */
  readonly sequence: number;
  readonly message: Message;
  /** Of the next delivery; 1 is the first. */
  readonly attempt: number;
  /** Whether a consumer had it and crashed. Defaults to false. */
  readonly redelivered?: boolean;
}

/** A message that was set aside, and why. */
export interface ParkedMessage {
  readonly message: Message;
  readonly reason: Error;
  readonly attempt: number;
}

/** One queue: every message in it goes to one of its consumers. */
export class MemoryQueue {
  readonly name: string;
  readonly parked: ParkedMessage[] = [];
  /** Sorted by sequence; those before `#head` have been taken. */
  #ready: QueueEntry[] = [];
  #head = 0;
  #lastSequence = 0;
  #depth = 0;
  readonly #watchers = new Set<() => void>();

  constructor(name: string) {
    this.name = name;
  }

  /** The messages in it, taken ones and those that wait for a retry included. */
  get depth(): number {
    return this.#depth;
  }

  /** Adds a new message at the end. */
  publish(message: Message): void {
    this.#depth++;
    this.append(message, 1);
  }

  /** Puts a message that was taken at the end. */
  append(message: Message, attempt: number): void {
    this.#ready.push({ sequence: ++this.#lastSequence, message, attempt });
    this.#changed();
  }

  /** Puts a message that was taken back to its old place, before everything that came after it. */
  giveBack(entry: QueueEntry): void {
    let index = this.#head;
    while ((this.#ready[index]?.sequence ?? Number.POSITIVE_INFINITY) < entry.sequence) index++;
    if (index === this.#head && index > 0) this.#ready[--this.#head] = entry;
    else this.#ready.splice(index, 0, entry);
    this.#changed();
  }

  /** The first message, if `fits`; it stays in the queue's care until it is given back or removed. */
  take(fits: (entry: QueueEntry) => boolean): QueueEntry | undefined {
    const entry = this.#ready[this.#head];
    if (entry === undefined || !fits(entry)) return undefined;
    this.#head++;
    // Shifting each time would move all the others each time.
    if (this.#head > 1024 && this.#head * 2 > this.#ready.length) {
      this.#ready = this.#ready.slice(this.#head);
      this.#head = 0;
    }
    return entry;
  }

  /** A message that was taken is done with. */
  remove(): void {
    this.#depth--;
  }

  /** Calls `watcher` whenever there may be something to take; the result ends that. */
  watch(watcher: () => void): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  #changed(): void {
    const [first] = this.#watchers;
    for (const watcher of this.#watchers) watcher();
    // In turns, as a broker hands out: else one consumer would get all that it gives back for others.
    if (first !== undefined && this.#watchers.size > 1) {
      this.#watchers.delete(first);
      this.#watchers.add(first);
    }
  }
}

/** Bytes are the one part of a message that can be written to: each holder gets its own. */
export function copyOf(message: Message): Message {
  return Object.freeze({ ...message, data: new Uint8Array(message.data) });
}
