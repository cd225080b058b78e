import type { Delivery, Subscription } from "../../transport.js";
import type { RoomLimits } from "../room.js";
import type { GroupMember, LogGroup, Progress } from "./log-group.js";
import type { LogPartition } from "./log-partition.js";
import { LogStream } from "./log-stream.js";

/** One run of a receiver: a member of its group, with a stream for each assigned partition. */
export class LogMember implements GroupMember {
  readonly topics: ReadonlySet<string>;
  readonly #group: LogGroup;
  readonly #limits: RoomLimits;
  readonly #subscription: Subscription;
  readonly #streams = new Map<LogPartition, LogStream>();
  /** Revoked streams with deliveries that are not settled yet. */
  readonly #revoked = new Set<LogStream>();
  #failure: { readonly cause: unknown } | undefined;
  #stopping = false;
  #crashed = false;
  #changed = () => {};

  constructor(group: LogGroup, limits: RoomLimits, subscription: Subscription) {
    this.#group = group;
    this.#limits = limits;
    this.#subscription = subscription;
    this.topics = new Set(subscription.events.map(({ topic }) => topic));
  }

  /** Runs until the signal is aborted and every delivery is settled, or until it crashes. */
  async run(signal: AbortSignal): Promise<void> {
    const stop = () => {
      this.#stopping = true;
      for (const stream of this.#streams.values()) stream.stop();
      this.#changed();
    };
    signal.addEventListener("abort", stop, { once: true });
    this.#group.join(this);
    if (signal.aborted) stop();
    this.#subscription.ready?.();
    while (!this.#over) {
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
      });
    }
    signal.removeEventListener("abort", stop);
    if (this.#failure !== undefined) this.crash();
    this.#group.leave(this);
    if (this.#failure !== undefined) throw this.#failure.cause;
  }

  /**
   * Acts like a crash of its process: others get what it had not committed, and its later settlements have no effect.
   */
  crash(): void {
    this.#crashed = true;
    this.#group.leave(this);
    this.#changed();
  }

  assign(partition: LogPartition, progress: Progress): void {
    const stream = new LogStream(partition, progress, this.#limits, {
      deliver: (delivery: Delivery) => this.#subscription.deliver(delivery),
      changed: () => this.#heard(stream),
      failed: (cause) => {
        this.#failure ??= { cause };
      },
    });
    if (this.#stopping) stream.stop();
    this.#streams.set(partition, stream);
  }

  revoke(partition: LogPartition): void {
    const stream = this.#streams.get(partition);
    if (stream === undefined) return;
    this.#streams.delete(partition);
    if (stream.busy) this.#revoked.add(stream);
    stream.revoke(
      `partition ${partition.name} was revoked, and its messages are delivered to the member that has it now`,
    );
  }

  #heard(stream: LogStream): void {
    if (!stream.busy) this.#revoked.delete(stream);
    this.#changed();
  }

  get #over(): boolean {
    if (this.#crashed || this.#failure !== undefined) return true;
    return this.#stopping && this.#revoked.size === 0 && [...this.#streams.values()].every(({ busy }) => !busy);
  }
}
