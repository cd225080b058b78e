import { PostboxError } from "../../errors.js";
import { messageBytes } from "../../message/attributes.js";
import type { Message } from "../../message/message.js";
import { settleOnce } from "../../settle-once.js";
import type { Delivery } from "../../transport.js";
import { Room, type RoomLimits } from "../room.js";
import { createWatermark, type Watermark } from "../watermark.js";
import type { Progress } from "./log-group.js";
import type { LogPartition } from "./log-partition.js";
import { copyOf } from "./memory-queue.js";

export interface StreamListener {
  deliver(delivery: Delivery): Promise<void>;
  /** A delivery was settled, or the consumer took it. */
  changed(): void;
  failed(cause: unknown): void;
}

/** A partition while it is assigned to one member: from the committed offset, until it is revoked. */
export class LogStream {
  readonly #partition: LogPartition;
  readonly #progress: Progress;
  readonly #room: Room;
  readonly #listener: StreamListener;
  readonly #watermark: Watermark;
  /** Messages below this offset were delivered before this stream began. */
  readonly #flaggedBelow: number;
  readonly #revoked = new AbortController();
  readonly #unwatch: () => void;
  #next: number;
  /** Released offsets in ascending order. They are delivered again before anything later. */
  readonly #released: number[] = [];
  #handingOver = false;
  #stopped = false;

  constructor(partition: LogPartition, progress: Progress, limits: RoomLimits, listener: StreamListener) {
    this.#partition = partition;
    this.#progress = progress;
    this.#room = new Room(limits);
    this.#listener = listener;
    this.#watermark = createWatermark(progress.committed);
    this.#flaggedBelow = progress.handedOver;
    this.#next = progress.committed;
    this.#unwatch = partition.watch(() => this.#handOver());
    // Not within the rebalance that assigns it.
    queueMicrotask(() => this.#handOver());
  }

  /** Whether a delivery is not settled, or not taken yet. */
  get busy(): boolean {
    return this.#room.taken > 0 || this.#handingOver;
  }

  /** Delivers nothing more. Later settlements still count. */
  stop(): void {
    this.#stopped = true;
    this.#unwatch();
  }

  /** Another member has it: later settlements have no effect. */
  revoke(why: string): void {
    this.stop();
    this.#revoked.abort(new PostboxError("delivery-revoked", why));
  }

  #handOver(): void {
    if (this.#handingOver || this.#stopped) return;
    const offset = this.#released[0] ?? this.#next;
    const message = this.#partition.at(offset);
    if (message === undefined || !this.#room.fits(messageBytes(message))) return;
    if (this.#released.length > 0) this.#released.shift();
    else {
      this.#watermark.start(offset);
      this.#next = offset + 1;
      this.#progress.handedOver = Math.max(this.#progress.handedOver, this.#next);
    }
    this.#room.take(messageBytes(message));
    this.#handingOver = true;
    const taken = (async () => this.#listener.deliver(this.#delivery(offset, message)))();
    taken
      .catch((cause: unknown) => this.#listener.failed(cause))
      .finally(() => {
        this.#handingOver = false;
        this.#handOver();
        this.#listener.changed();
      });
  }

  #delivery(offset: number, message: Message): Delivery {
    const { name } = this.#partition;
    const { signal } = this.#revoked;
    const once = settleOnce(message.id);
    const settle = async (verb: string, effect: () => void): Promise<void> => {
      once(verb);
      this.#room.free(messageBytes(message));
      if (!signal.aborted) effect();
      this.#handOver();
      this.#listener.changed();
    };
    return {
      message: copyOf(message),
      attempt: 1,
      stream: name,
      signal,
      ...(offset < this.#flaggedBelow && { redelivered: true }),
      origin: { partition: name, offset: String(offset) },
      ack: () => settle("ack", () => this.#commit(offset)),
      release: () => settle("release", () => this.#takeBack(offset)),
      retry: () => Promise.reject(unable("retry", message)),
      park: () => Promise.reject(unable("park", message)),
    };
  }

  /** Only as far as everything before is done, since a commit covers all offsets below it. */
  #commit(offset: number): void {
    this.#watermark.finish(offset);
    this.#progress.committed = this.#watermark.at;
  }

  #takeBack(offset: number): void {
    const place = this.#released.findIndex((other) => other > offset);
    this.#released.splice(place === -1 ? this.#released.length : place, 0, offset);
  }
}

function unable(verb: string, { id }: Message): PostboxError {
  return new PostboxError(
    "option-invalid",
    `${verb}() on the delivery of ${id}: a log acknowledges in order and cannot ${verb} a single message; handle ` +
      "it behind inbox(store)",
  );
}
