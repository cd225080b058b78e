import type { ChannelModel, ConsumeMessage } from "amqplib";
import { PermanentError, TransportDownError } from "../../errors.js";
import { messageBytes } from "../../message/attributes.js";
import type { Message } from "../../message/message.js";
import { isNobodysFault } from "../../router/nobodys-fault.js";
import { settleOnce } from "../../settle-once.js";
import { aboutMessage, type Telemetry } from "../../telemetry/events.js";
import type { Delivery, Subscription } from "../../transport.js";
import { gatheredAcks } from "./acks.js";
import { fromAmqp } from "./amqp-message.js";
import { createAside } from "./aside.js";
import { close } from "./connection.js";
import { attemptHeader, idOf } from "./copy.js";
import type { Links } from "./link.js";
import type { QueueOptions, Topology } from "./topology.js";
import { undecodable } from "./undecodable.js";

export interface ConsumeOptions {
  readonly queue: QueueOptions;
  readonly topology: Topology;
  readonly prefetch: number;
  readonly prefetchBytes: number;
  readonly unprefixed: boolean;
  readonly maxMessageBytes: number;
}

/** What came, and what it is; or why it cannot be read. */
interface Arrival {
  readonly raw: ConsumeMessage;
  readonly read: Message | Error;
  readonly bytes: number;
  /** Whether it may be what crashes its consumers: then nothing else is in flight while it is handled. */
  readonly suspect: boolean;
}

export interface ConsumeListener {
  /** Messages come from now on. */
  ready(): void;
  lost(error: Error): void;
  readonly telemetry: Telemetry;
}

/**
 * Hands over what the queue has, one after the other, until the signal is aborted and everything is settled. Rejects when the
 * connection is lost, or the queue deleted; what is unsettled then is delivered again. That is told at once, but it waits for what it
 * has handed over before it rejects.
 *
 * A quorum queue gives a message up after so many deliveries without an outcome, and a crash counts for everything that the consumer
 * had prefetched. Therefore it takes one message at a time at first, and as long as that one was delivered several times before: a
 * message that crashes its consumers is then counted alone. Not with a single active consumer, which would lose its turn by that.
 */
export async function consume(
  connection: ChannelModel,
  links: Pick<Links, "get" | "hurry">,
  { queue: queueOptions, topology, prefetch, prefetchBytes, unprefixed, maxMessageBytes }: ConsumeOptions,
  subscription: Subscription,
  signal: AbortSignal,
  { ready, lost: onLost, telemetry }: ConsumeListener,
): Promise<void> {
  const { queue, queueType, singleActiveConsumer } = queueOptions;
  const isolates = queueType === "quorum" && !singleActiveConsumer && prefetch > 1;
  const buffered: Arrival[] = [];
  let unsettled = 0;
  let unsettledBytes = 0;
  let delivering = false;
  let lost: Error | undefined;
  /** Of every delivery: aborted when the connection is lost, since the broker takes back all of them at once. */
  const taken = new AbortController();
  let over = false;
  /** Wakes the end, which alone waits for anything here. */
  let changed = () => {};

  const lose = (why: string) => {
    if (lost !== undefined || over) return;
    lost = new TransportDownError("send", why);
    onLost(lost);
    taken.abort(lost);
    changed();
  };
  const channel = await connection.createChannel();
  channel.on("error", (error) => lose(`RabbitMQ closed the channel: ${error.message}`));
  channel.on("close", () => lose("the connection to RabbitMQ was lost"));
  const acks = gatheredAcks(channel);
  const aside = createAside(connection, links, queueOptions, topology);

  /**
   * After a stop it stays open, and goes back with the channel: that gives back everything at once and in its order, and the turn of a
   * single active consumer only then. Of many that are given back one by one, a quorum queue forgets the order.
   */
  function giveBack(raw: ConsumeMessage): void {
    // Whoever gives it back at a stop may hear of the stop first.
    process.nextTick(() => {
      if (signal.aborted) return;
      acks.without(raw.fields.deliveryTag);
      try {
        channel.nack(raw, false, true);
      } catch {
        // The client knows that the channel has ended before it says so, and with that it is given back. This would end the process.
      }
    });
  }

  /**
   * What cannot be put aside now: given back at once it would come, and fail, at once. Older brokers count this as a delivery without an
   * outcome: with growing pauses, the limit of those outlasts an outage of a quarter of an hour.
   */
  function giveBackLater(raw: ConsumeMessage): void {
    setTimeout(() => lost === undefined && !over && giveBack(raw), pauseAfter(raw)).unref();
  }

  /**
   * Has the broker park it, for what this client cannot copy: nothing of it gets lost. Only a queue that was declared here is known to
   * dead-letter; any other one gets it back, counted, and decides by its own limit.
   */
  function parkByBroker(raw: ConsumeMessage): void {
    const reject = (requeue: boolean) => {
      acks.without(raw.fields.deliveryTag);
      try {
        channel.reject(raw, requeue);
      } catch {
        // As above.
      }
    };
    if (topology === "declare") reject(false);
    else setTimeout(() => lost === undefined && !over && reject(true), pauseAfter(raw)).unref();
  }

  function settling({ raw, bytes }: Arrival, id: string) {
    const once = settleOnce(id);
    return async (verb: string, effect: () => Promise<void> | void): Promise<void> => {
      once(verb);
      try {
        if (lost !== undefined) throw lost;
        await effect();
      } catch (error) {
        // While the connection stands, nothing else would give it back.
        if (lost === undefined) giveBackLater(raw);
        throw error;
      } finally {
        unsettled--;
        unsettledBytes -= bytes;
        changed();
        void deliverAll();
      }
    };
  }

  function deliveryOf(arrival: Arrival, message: Message): Delivery {
    const { raw } = arrival;
    const { deliveryTag } = raw.fields;
    const attempt = attemptOf(raw);
    const settle = settling(arrival, message.id);
    const ack = () => acks.add(deliveryTag);
    return {
      message,
      attempt,
      signal: taken.signal,
      ...(raw.fields.redelivered && { redelivered: true }),
      origin: { partition: queue, offset: String(deliveryTag) },
      ack: () => settle("ack", ack),
      // Acked once the broker has the copy: a crash in between leaves both.
      retry: (delayMs, reason) =>
        settle("retry", () =>
          aside.wait(raw, delayMs, isNobodysFault(reason) ? attempt : attempt + 1).then(ack, (error) => {
            if (!(error instanceof PermanentError)) throw error;
            parkByBroker(raw);
            telemetry({ name: "delivery.parked", consumer: subscription.consumer, ...aboutMessage(message), error });
          }),
        ),
      park: (reason) => settle("park", () => aside.park(raw, reason, attempt).then(ack)),
      release: () => settle("release", () => giveBack(raw)),
    };
  }

  function arrivalOf(raw: ConsumeMessage): Arrival {
    const { exchange } = raw.fields;
    const suspect = isolates && deliveriesOf(raw) >= suspectAt;
    const unread = undecodable(raw.properties);
    if (unread !== undefined) {
      const text = `a message in ${queue} has headers that cannot be decoded: ${unread}; see what publishes it`;
      return {
        raw,
        read: new PermanentError(text, { code: "message-invalid" }),
        bytes: raw.content.length,
        suspect: false,
      };
    }
    try {
      const message = fromAmqp(raw as Parameters<typeof fromAmqp>[0], { exchange, unprefixed, maxMessageBytes });
      return { raw, read: message, bytes: messageBytes(message), suspect };
    } catch (error) {
      return { raw, read: error as Error, bytes: raw.content.length, suspect };
    }
  }

  async function deliver(arrival: Arrival): Promise<void> {
    const { raw, read } = arrival;
    if (read instanceof Error) {
      const { consumer } = subscription;
      const id = idOf(raw);
      const settle = settling(arrival, id);
      const park = () =>
        undecodable(raw.properties) === undefined
          ? aside.park(raw, read).then(() => acks.add(raw.fields.deliveryTag))
          : parkByBroker(raw);
      await settle("park", park).then(
        () => telemetry({ name: "delivery.parked", consumer, id, error: read }),
        (error: Error) => {
          if (lost !== undefined) return;
          const [attempt, retryInMs] = [attemptOf(raw), pauseAfter(raw)];
          telemetry({ name: "delivery.retried", consumer, id, attempt, retryInMs, error });
        },
      );
      return;
    }
    const delivery = deliveryOf(arrival, read);
    try {
      await subscription.deliver(delivery);
    } catch {
      await delivery.release().catch(() => {});
    }
  }

  /** One message always fits, or one larger than the bound would never be delivered. */
  function fits({ bytes, suspect }: Arrival): boolean {
    if (unsettled === 0) return true;
    return !suspect && unsettled < prefetch && unsettledBytes + bytes <= prefetchBytes;
  }

  /** One at a time: the next when the last was taken. */
  async function deliverAll(): Promise<void> {
    if (delivering) return;
    delivering = true;
    while (lost === undefined && !signal.aborted && !narrowing) {
      const [next] = buffered;
      if (next === undefined || !fits(next)) break;
      buffered.shift();
      unsettled++;
      unsettledBytes += next.bytes;
      await deliver(next);
    }
    delivering = false;
    changed();
  }

  /** How many messages the broker may send at a time: one, or `prefetch`. */
  let room = isolates ? 1 : prefetch;
  /** How many more that are not suspect have to come one at a time. */
  let alone = isolates ? 1 : 0;
  /** Whether nothing is handed over until everything buffered is given back. */
  let narrowing = false;
  let adjusting = false;
  /** Of our own making: messages may come before the answer that would tell it. */
  let consumerTag = "";
  let started = 0;
  let standing = false;

  function stands(): void {
    if (standing) return;
    standing = true;
    ready();
  }

  async function start(): Promise<void> {
    await channel.prefetch(room);
    consumerTag = `postbox-${++started}`;
    const arrived = (raw: ConsumeMessage | null) => {
      if (raw === null) return lose(`the queue ${queue} was deleted, or its consumers cancelled`);
      stands();
      acks.opened(raw.fields.deliveryTag);
      const arrival = arrivalOf(raw);
      buffered.push(arrival);
      if (isolates) isolate(arrival);
      void deliverAll();
    };
    await channel.consume(queue, arrived, { consumerTag });
  }

  /** After a suspect, as many others as were prefetched with it come alone as well: they were returned together. */
  function isolate({ suspect }: Arrival): void {
    if (suspect) {
      alone = prefetch;
      if (room > 1) narrowing = true;
    } else if (alone > 0) alone--;
    // A failure ends the channel, and its events tell of that.
    if (!adjusting) adjust().catch(() => {});
  }

  /** One consumer after the other, so that messages stay in order. */
  async function adjust(): Promise<void> {
    adjusting = true;
    while (room !== (alone > 0 ? 1 : prefetch) && lost === undefined && !signal.aborted) {
      room = alone > 0 ? 1 : prefetch;
      await channel.cancel(consumerTag);
      if (narrowing) for (const { raw } of buffered.splice(0)) giveBack(raw);
      narrowing = false;
      await start();
    }
    adjusting = false;
    changed();
  }

  await start();
  stands();
  const stop = () => changed();
  signal.addEventListener("abort", stop, { once: true });
  const until = async (done: () => boolean) => {
    while (!done()) {
      await new Promise<void>((resolve) => {
        changed = resolve;
      });
    }
  };
  try {
    await until(() => lost !== undefined || signal.aborted);
    links.hurry();
    await until(() => !adjusting || lost !== undefined);
    if (lost === undefined) {
      // The next consumer's turn would begin with that, though this one still has earlier messages: until its channel ends, it keeps what comes.
      if (!singleActiveConsumer) await channel.cancel(consumerTag).catch(() => {});
      await until(() => !delivering || lost !== undefined);
    }
    // Also of a lost connection, what was handed over is still in somebody's hands.
    await until(() => unsettled === 0 && !delivering);
    if (lost !== undefined) throw lost;
    // Acks are not answered: what comes after them on the channel is.
    acks.flush();
    over = true;
    await close(channel);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** A message that was delivered so often without an outcome may be the reason. Twice is a restart and a lost connection. */
const suspectAt = 3;

/** From a second to a minute. */
function pauseAfter(raw: ConsumeMessage): number {
  return Math.min(60_000, 1000 * 2 ** Math.min(deliveriesOf(raw), 6));
}

/** Spent by `retry()` alone. */
function attemptOf({ properties }: ConsumeMessage): number {
  return countIn(properties.headers?.[attemptHeader], 1);
}

/** How often a quorum queue has delivered the message without learning an outcome. Other queues do not count, nor does a publisher. */
function deliveriesOf({ fields, properties }: ConsumeMessage): number {
  return fields.redelivered ? countIn(properties.headers?.["x-delivery-count"], 0) : 0;
}

/** A publisher can write any header: what is no plausible count is none. */
function countIn(header: unknown, least: number): number {
  const plausible = typeof header === "number" && Number.isInteger(header) && header >= least && header <= 1_000_000;
  return plausible ? header : least;
}
