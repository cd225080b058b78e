import { PostboxError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import { messageBytes } from "../../message/attributes.js";
import { isTransient } from "../../router/is-transient.js";
import { settleOnce } from "../../settle-once.js";
import type { Delivery, Subscription } from "../../transport.js";
import { Room, type RoomLimits } from "../room.js";
import { copyOf, type MemoryQueue, type QueueEntry } from "./memory-queue.js";

/** One run of a receiver on a queue. Its unsettled deliveries are its own until it crashes. */
export class MemoryConsumer {
  readonly #queue: MemoryQueue;
  readonly #room: Room;
  readonly #runtime: Runtime;
  readonly #unsettled = new Map<QueueEntry, number>();
  /** The signal of every delivery: aborted when all of them are revoked. */
  readonly #taken = new AbortController();
  #delivering = false;
  #failure: { readonly cause: unknown } | undefined;
  #crashed = false;
  #woken = false;
  #resume = () => {};

  constructor(queue: MemoryQueue, limits: RoomLimits, runtime: Runtime) {
    this.#queue = queue;
    this.#room = new Room(limits);
    this.#runtime = runtime;
  }

  async run(subscription: Subscription, signal: AbortSignal): Promise<void> {
    const wake = () => this.#wake();
    const unwatch = this.#queue.watch(wake);
    signal.addEventListener("abort", wake);
    subscription.ready?.();
    try {
      while (!signal.aborted && !this.#over) {
        const entry = this.#delivering
          ? undefined
          : this.#queue.take(({ message }) => this.#room.fits(messageBytes(message)));
        if (entry === undefined) await this.#wait();
        else this.#handOver(entry, subscription);
      }
      while (this.#unsettled.size > 0 && !this.#over) await this.#wait();
    } finally {
      unwatch();
      signal.removeEventListener("abort", wake);
    }
    if (this.#failure === undefined) return;
    this.crash();
    throw this.#failure.cause;
  }

  /** Acts like a crash of its process: its deliveries go to others, and its later settlements have no effect. */
  crash(): void {
    this.#crashed = true;
    const lost = [...this.#unsettled.keys()];
    this.#unsettled.clear();
    for (const entry of lost) this.#queue.giveBack({ ...entry, redelivered: true });
    this.#taken.abort(new PostboxError("delivery-revoked", "the receiver crashed; the message is delivered to others"));
    this.#wake();
  }

  get #over(): boolean {
    return this.#crashed || this.#failure !== undefined;
  }

  #handOver(entry: QueueEntry, subscription: Subscription): void {
    const size = messageBytes(entry.message);
    this.#unsettled.set(entry, size);
    this.#room.take(size);
    this.#delivering = true;
    const taken = (async () => subscription.deliver(this.#delivery(entry)))();
    taken
      .catch((cause: unknown) => {
        this.#failure = { cause };
      })
      .finally(() => {
        this.#delivering = false;
        this.#wake();
      });
  }

  #delivery(entry: QueueEntry): Delivery {
    const { message, attempt } = entry;
    const queue = this.#queue;
    const once = settleOnce(message.id);
    const settle = async (verb: string, effect: () => void): Promise<void> => {
      once(verb);
      const size = this.#unsettled.get(entry);
      // After a crash, the queue has delivered it again.
      if (size === undefined) return;
      this.#unsettled.delete(entry);
      this.#room.free(size);
      effect();
      this.#wake();
    };
    return {
      message: copyOf(message),
      attempt,
      signal: this.#taken.signal,
      ...(entry.redelivered && { redelivered: true }),
      origin: { offset: String(entry.sequence) },
      ack: () => settle("ack", () => queue.remove()),
      release: () => settle("release", () => queue.giveBack(entry)),
      retry: (delayMs, reason) =>
        settle("retry", () => {
          const next = isTransient(reason) ? attempt : attempt + 1;
          this.#runtime.schedule(() => queue.append(message, next), delayMs);
        }),
      park: (reason) =>
        settle("park", () => {
          queue.remove();
          queue.parked.push({ message, reason, attempt });
        }),
    };
  }

  #wake(): void {
    this.#woken = true;
    this.#resume();
  }

  /** Resolves at the next `#wake`, or at once if there was one since the last wait. */
  async #wait(): Promise<void> {
    if (!this.#woken) {
      await new Promise<void>((resolve) => {
        this.#resume = resolve;
      });
    }
    this.#woken = false;
  }
}
