import type { Message } from "../../message/message.js";
import { copyOf } from "./memory-queue.js";

/** One partition of a topic: its messages in the order of their offsets, read by any number of groups. */
export class LogPartition {
  /** Its topic and its number, which a delivery names as its stream. */
  readonly name: string;
  /** Whether senders can reach it. A partition of a real broker may be without a leader for moments. */
  isAvailable = true;
  readonly #messages: Message[] = [];
  readonly #readers = new Set<() => void>();

  constructor(topic: string, number: number) {
    this.name = `${topic}/${number}`;
  }

  /** The offset of the next message. */
  get end(): number {
    return this.#messages.length;
  }

  at(offset: number): Message | undefined {
    return this.#messages[offset];
  }

  append(message: Message): void {
    this.#messages.push(copyOf(message));
    for (const reader of this.#readers) reader();
  }

  /** Calls `reader` after each append, until the returned function is called. */
  watch(reader: () => void): () => void {
    this.#readers.add(reader);
    return () => this.#readers.delete(reader);
  }
}

/** The partition of a key: the FNV-1a hash of its characters. Stable, so that a key stays in its partition. */
export function partitionOf(key: string, count: number): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < key.length; at++) hash = Math.imul(hash ^ key.charCodeAt(at), 0x01000193);
  return (hash >>> 0) % count;
}
