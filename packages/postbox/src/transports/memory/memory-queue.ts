import type { Message } from "../../message/message.js";

/** A message in a queue. */
export interface QueueEntry {
  /** Its position: lower ones are delivered first. */
  readonly sequence: number;
  readonly message: Message;
  /** The attempt of the next delivery, from 1. */
  readonly attempt: number;
  /** Whether a consumer that had it crashed. Defaults to false. */
  readonly redelivered?: boolean;
}

/** A parked message, and why it was parked. */
export interface ParkedMessage {
  readonly message: Message;
  readonly reason: Error;
  readonly attempt: number;
}

/** One queue: each message goes to one of its consumers. */
export class MemoryQueue {
  readonly name: string;
  readonly parked: ParkedMessage[] = [];
  /** Sorted by sequence. Those before `#head` have been taken. */
  #ready: QueueEntry[] = [];
  #head = 0;
  #lastSequence = 0;
  #depth = 0;
  readonly #watchers = new Set<() => void>();

  constructor(name: string) {
    this.name = name;
  }

  /** The number of messages, including taken ones and those that wait for a retry. */
  get depth(): number {
    return this.#depth;
  }

  /** Adds a new message at the end. */
  publish(message: Message): void {
    this.#depth++;
    this.append(message, 1);
  }

  /** Adds a message that was taken at the end. */
  append(message: Message, attempt: number): void {
    this.#ready.push({ sequence: ++this.#lastSequence, message, attempt });
    this.#changed();
  }

  /** Puts a message that was taken back in its old position, before all later ones. */
  giveBack(entry: QueueEntry): void {
    let index = this.#head;
    while ((this.#ready[index]?.sequence ?? Number.POSITIVE_INFINITY) < entry.sequence) index++;
    if (index === this.#head && index > 0) this.#ready[--this.#head] = entry;
    else this.#ready.splice(index, 0, entry);
    this.#changed();
  }

  /** Takes the first message, if `fits`. It counts as the queue's until it is given back or removed. */
  take(fits: (entry: QueueEntry) => boolean): QueueEntry | undefined {
    const entry = this.#ready[this.#head];
    if (entry === undefined || !fits(entry)) return undefined;
    this.#head++;
    // Shifting the array each time would move all others each time.
    if (this.#head > 1024 && this.#head * 2 > this.#ready.length) {
      this.#ready = this.#ready.slice(this.#head);
      this.#head = 0;
    }
    return entry;
  }

  /** A message that was taken is done. */
  remove(): void {
    this.#depth--;
  }

  /** Calls `watcher` when there may be a message to take, until the returned function is called. */
  watch(watcher: () => void): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  #changed(): void {
    const [first] = this.#watchers;
    for (const watcher of this.#watchers) watcher();
    // Takes turns, as a broker does: otherwise one consumer would get everything that it gives back for others.
    if (first !== undefined && this.#watchers.size > 1) {
      this.#watchers.delete(first);
      this.#watchers.add(first);
    }
  }
}

/** Bytes are the only mutable part of a message, so each holder gets its own copy. */
export function copyOf(message: Message): Message {
  return Object.freeze({ ...message, data: new Uint8Array(message.data) });
}
