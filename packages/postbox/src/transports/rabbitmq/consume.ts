import type { Channel, ChannelModel, ConsumeMessage } from "amqplib";
import { PermanentError, TransportDownError } from "../../errors.js";
import { whenAborted } from "../../internal/when-aborted.js";
import type { Message } from "../../message/message.js";
import { isTransient } from "../../router/is-transient.js";
import { settleOnce } from "../../settle-once.js";
import { aboutMessage, type Telemetry } from "../../telemetry/events.js";
import type { Delivery, Subscription } from "../../transport.js";
import { Room, type RoomLimits } from "../room.js";
import { type Acks, gatheredAcks } from "./acks.js";
import { type Arrival, attemptOf, pauseAfter, readArrival } from "./arrival.js";
import { type Aside, createAside } from "./aside.js";
import { close } from "./connection.js";
import { idOf } from "./copy.js";
import { createIsolation, type Isolation } from "./isolation.js";
import type { Links } from "./link.js";
import { createReturns, type Returns } from "./returns.js";
import type { QueueOptions, Topology } from "./topology.js";
import { undecodable } from "./undecodable.js";

export interface ConsumeOptions extends RoomLimits {
  readonly queue: QueueOptions;
  readonly topology: Topology;
  readonly unprefixed: boolean;
  readonly maxMessageBytes: number;
}

export interface ConsumeListener {
  /** Messages arrive from now on. */
  ready(): void;
  lost(error: Error): void;
  readonly telemetry: Telemetry;
}

/**
 * Delivers the queue's messages one after another until the signal is aborted and everything is settled. Rejects if the
 * connection is lost or the queue is deleted; unsettled messages are delivered again. `lost` is called at once, but the
 * call rejects only when all deliveries are settled.
 */
export async function consume(
  connection: ChannelModel,
  links: Pick<Links, "get" | "hurry">,
  options: ConsumeOptions,
  subscription: Subscription,
  signal: AbortSignal,
  listener: ConsumeListener,
): Promise<void> {
  const channel = await connection.createChannel();
  const aside = createAside(connection, links, options.queue, options.topology);
  const consumer = new QueueConsumer(channel, aside, options, subscription, signal, listener);
  await consumer.run(() => links.hurry());
}

/** A consumer on a channel of its own. */
class QueueConsumer {
  readonly #channel: Channel;
  readonly #aside: Aside;
  readonly #options: ConsumeOptions;
  readonly #subscription: Subscription;
  readonly #signal: AbortSignal;
  readonly #listener: ConsumeListener;
  readonly #acks: Acks;
  readonly #returns: Returns;
  readonly #room: Room;
  /** Absent if messages never need to be delivered alone. */
  readonly #isolation: Isolation | undefined;
  readonly #buffered: Arrival[] = [];
  /**
   * The signal of every delivery: aborted when the connection is lost, since the broker revokes all of them at once.
   */
  readonly #taken = new AbortController();
  #lost: Error | undefined;
  #over = false;
  #delivering = false;
  #adjusting = false;
  #isReady = false;
  /** Chosen here, since messages may arrive before the answer that contains it. */
  #consumerTag = "";
  #started = 0;
  /** Wakes `run`, which waits for the end. */
  #changed = () => {};

  constructor(
    channel: Channel,
    aside: Aside,
    options: ConsumeOptions,
    subscription: Subscription,
    signal: AbortSignal,
    listener: ConsumeListener,
  ) {
    const { queue, prefetch, topology } = options;
    this.#channel = channel;
    this.#aside = aside;
    this.#options = options;
    this.#subscription = subscription;
    this.#signal = signal;
    this.#listener = listener;
    this.#room = new Room(options);
    this.#acks = gatheredAcks(channel);
    this.#returns = createReturns(channel, this.#acks, topology, signal, () => this.#lost === undefined && !this.#over);
    // A single active consumer that restarts would lose its turn.
    const isolates = queue.queueType === "quorum" && !queue.singleActiveConsumer && prefetch > 1;
    this.#isolation = isolates ? createIsolation(prefetch) : undefined;
    channel.on("error", (error) => this.#lose(`RabbitMQ closed the channel: ${error.message}`));
    channel.on("close", () => this.#lose("the connection to RabbitMQ was lost"));
  }

  /** `hurry` is called when it ends: from then on, setting messages aside must not wait for a blocked broker. */
  async run(hurry: () => void): Promise<void> {
    await this.#start();
    this.#ready();
    const forget = whenAborted(this.#signal, () => this.#changed());
    try {
      await this.#until(() => this.#lost !== undefined || this.#signal.aborted);
      hurry();
      await this.#until(() => !this.#adjusting || this.#lost !== undefined);
      await this.#end();
    } finally {
      forget();
    }
  }

  async #end(): Promise<void> {
    if (this.#lost === undefined) {
      // Cancelling would activate the next consumer while this one still has earlier messages, so it keeps what arrives
      // until its channel closes.
      if (!this.#options.queue.singleActiveConsumer) await this.#channel.cancel(this.#consumerTag).catch(() => {});
      await this.#until(() => !this.#delivering || this.#lost !== undefined);
    }
    // After a lost connection, handlers still settle their deliveries.
    await this.#until(() => this.#room.taken === 0 && !this.#delivering);
    if (this.#lost !== undefined) throw this.#lost;
    // Acknowledgements have no answer, but what follows them on the channel has.
    this.#acks.flush();
    this.#over = true;
    await close(this.#channel);
  }

  async #until(done: () => boolean): Promise<void> {
    while (!done()) {
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
      });
    }
  }

  #ready(): void {
    if (this.#isReady) return;
    this.#isReady = true;
    this.#listener.ready();
  }

  #lose(why: string): void {
    if (this.#lost !== undefined || this.#over) return;
    this.#lost = new TransportDownError("send", why);
    this.#listener.lost(this.#lost);
    this.#taken.abort(this.#lost);
    this.#changed();
  }

  async #start(): Promise<void> {
    await this.#channel.prefetch(this.#isolation?.room ?? this.#options.prefetch);
    this.#consumerTag = `postbox-${++this.#started}`;
    const { queue } = this.#options.queue;
    await this.#channel.consume(queue, (raw) => this.#arrived(raw), { consumerTag: this.#consumerTag });
  }

  #arrived(raw: ConsumeMessage | null): void {
    const { queue, unprefixed, maxMessageBytes } = this.#options;
    if (raw === null) {
      this.#lose(`the queue ${queue.queue} was deleted, or its consumers cancelled`);
      return;
    }
    this.#ready();
    this.#acks.opened(raw.fields.deliveryTag);
    const reading = { queue: queue.queue, isolates: this.#isolation !== undefined, unprefixed, maxMessageBytes };
    const arrival = readArrival(raw, reading);
    this.#buffered.push(arrival);
    if (this.#isolation !== undefined) {
      this.#isolation.arrived(arrival.suspect);
      // A failure closes the channel, which is noticed by its events.
      if (!this.#adjusting) this.#adjust(this.#isolation).catch(() => {});
    }
    void this.#deliverAll();
  }

  /**
   * Restarts the consumer until it has the prefetch that `isolation` wants. Each restart waits for the one before, so
   * that messages stay in order.
   */
  async #adjust(isolation: Isolation): Promise<void> {
    this.#adjusting = true;
    while (this.#lost === undefined && !this.#signal.aborted && isolation.adjust()) {
      await this.#channel.cancel(this.#consumerTag);
      if (isolation.narrowing) for (const { raw } of this.#buffered.splice(0)) this.#returns.now(raw);
      isolation.emptied();
      await this.#start();
    }
    this.#adjusting = false;
    this.#changed();
  }

  /** Delivers buffered messages one at a time: the next one when the router has taken the one before. */
  async #deliverAll(): Promise<void> {
    if (this.#delivering) return;
    this.#delivering = true;
    while (this.#lost === undefined && !this.#signal.aborted && !this.#isolation?.narrowing) {
      const [next] = this.#buffered;
      if (next === undefined || !this.#fits(next)) break;
      this.#buffered.shift();
      this.#room.take(next.bytes);
      await this.#deliver(next);
    }
    this.#delivering = false;
    this.#changed();
  }

  /** A suspect is delivered alone, so that a crash counts against no other message. */
  #fits({ bytes, suspect }: Arrival): boolean {
    return this.#room.taken === 0 || (!suspect && this.#room.fits(bytes));
  }

  async #deliver(arrival: Arrival): Promise<void> {
    const { read } = arrival;
    if (read instanceof Error) return this.#parkUnread(arrival, read);
    const delivery = this.#deliveryOf(arrival, read);
    try {
      await this.#subscription.deliver(delivery);
    } catch {
      await delivery.release().catch(() => {});
    }
  }

  async #parkUnread(arrival: Arrival, error: Error): Promise<void> {
    const { raw } = arrival;
    const { telemetry } = this.#listener;
    const about = { consumer: this.#subscription.consumer, id: idOf(raw) };
    const settle = this.#settling(arrival, about.id);
    const park = () =>
      undecodable(raw.properties) === undefined
        ? this.#aside.park(raw, error).then(() => this.#acks.add(raw.fields.deliveryTag))
        : this.#returns.toBroker(raw);
    await settle("park", park).then(
      () => telemetry({ name: "delivery.parked", ...about, error }),
      (error: Error) => {
        if (this.#lost !== undefined) return;
        const [attempt, retryInMs] = [attemptOf(raw), pauseAfter(raw)];
        telemetry({ name: "delivery.retried", ...about, attempt, retryInMs, error });
      },
    );
  }

  #deliveryOf(arrival: Arrival, message: Message): Delivery {
    const { raw } = arrival;
    const { deliveryTag } = raw.fields;
    const attempt = attemptOf(raw);
    const settle = this.#settling(arrival, message.id);
    const ack = () => this.#acks.add(deliveryTag);
    return {
      message,
      attempt,
      signal: this.#taken.signal,
      ...(raw.fields.redelivered && { redelivered: true }),
      origin: { partition: this.#options.queue.queue, offset: String(deliveryTag) },
      ack: () => settle("ack", ack),
      // Acknowledged once the broker has confirmed the copy. A crash in between leaves both.
      retry: (delayMs, reason) =>
        settle("retry", () =>
          this.#aside
            .wait(raw, delayMs, isTransient(reason) ? attempt : attempt + 1)
            .then(ack, (error) => this.#parkInstead(raw, message, error)),
        ),
      park: (reason) => settle("park", () => this.#aside.park(raw, reason, attempt).then(ack)),
      release: () => settle("release", () => this.#returns.now(raw)),
    };
  }

  /** For messages that can never be copied to a wait queue. */
  #parkInstead(raw: ConsumeMessage, message: Message, error: unknown): void {
    if (!(error instanceof PermanentError)) throw error;
    this.#returns.toBroker(raw);
    const { consumer } = this.#subscription;
    this.#listener.telemetry({ name: "delivery.parked", consumer, ...aboutMessage(message), error });
  }

  #settling({ raw, bytes }: Arrival, id: string) {
    const once = settleOnce(id);
    return async (verb: string, effect: () => Promise<void> | void): Promise<void> => {
      once(verb);
      try {
        if (this.#lost !== undefined) throw this.#lost;
        await effect();
      } catch (error) {
        // As long as the connection stands, nothing else would give the message back.
        if (this.#lost === undefined) this.#returns.later(raw);
        throw error;
      } finally {
        this.#room.free(bytes);
        this.#changed();
        void this.#deliverAll();
      }
    };
  }
}
