import type { ChannelModel, ConsumeMessage } from "amqplib";
import { PostboxError, TransportDownError } from "../../errors.js";
import { messageBytes } from "../../message/attributes.js";
import type { Message } from "../../message/message.js";
import type { Telemetry } from "../../telemetry/events.js";
import type { Delivery, Subscription } from "../../transport.js";
import { gatheredAcks } from "./acks.js";
import { fromAmqp } from "./amqp-message.js";
import { createAside } from "./aside.js";
import { close } from "./connection.js";
import { attemptHeader, idOf } from "./copy.js";
import type { Links } from "./link.js";
import type { QueueOptions, Topology } from "./topology.js";

export interface ConsumeOptions {
  readonly queue: QueueOptions;
  readonly topology: Topology;
  readonly prefetch: number;
  readonly prefetchBytes: number;
  readonly unprefixed: boolean;
  readonly maxMessageBytes: number;
}

/** What came, and what it is; or why nobody can read it. */
interface Arrival {
  readonly raw: ConsumeMessage;
  readonly read: Message | Error;
  readonly bytes: number;
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
 */
export async function consume(
  connection: ChannelModel,
  links: Pick<Links, "get" | "hurry">,
  { queue: { queue, ...queueOptions }, topology, prefetch, prefetchBytes, unprefixed, maxMessageBytes }: ConsumeOptions,
  subscription: Subscription,
  signal: AbortSignal,
  { ready, lost: onLost, telemetry }: ConsumeListener,
): Promise<void> {
  const buffered: Arrival[] = [];
  let unsettled = 0;
  let unsettledBytes = 0;
  let delivering = false;
  let lost: Error | undefined;
  let over = false;
  /** Wakes the end, which alone waits for anything here. */
  let changed = () => {};

  const lose = (why: string) => {
    if (lost !== undefined || over) return;
    lost = new TransportDownError("send", why);
    onLost(lost);
    changed();
  };
  const channel = await connection.createChannel();
  channel.on("error", (error) => lose(`RabbitMQ closed the channel: ${error.message}`));
  channel.on("close", () => lose("the connection to RabbitMQ was lost"));
  const acks = gatheredAcks(channel);
  const aside = createAside(connection, links, { queue, ...queueOptions }, topology);

  function giveBack(raw: ConsumeMessage): void {
    acks.without(raw.fields.deliveryTag);
    try {
      channel.nack(raw, false, true);
    } catch {
      // The client knows that the channel has ended before it says so, and with that it is given back. Out of a timer, this would end the process.
    }
  }

  /** What cannot be put aside: given back at once it would come, and fail, at once. */
  function giveBackLater(raw: ConsumeMessage): void {
    const later = setTimeout(() => lost === undefined && !over && giveBack(raw), pauseMs);
    later.unref();
  }

  function settling({ raw, bytes }: Arrival, id: string) {
    let settled = false;
    return async (verb: () => Promise<void> | void): Promise<void> => {
      if (settled) {
        throw new PostboxError("delivery-settled", `message ${id} is settled already; settle each delivery once`);
      }
      settled = true;
      try {
        if (lost !== undefined) throw lost;
        await verb();
      } catch (error) {
        // Nobody else settles it on a connection that lives.
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
      origin: { partition: queue, offset: String(deliveryTag) },
      ack: () => settle(ack),
      // Acked once the broker has the copy: whoever dies in between leaves both.
      retry: (delayMs) => settle(() => aside.wait(raw, delayMs, attempt + 1).then(ack)),
      park: (reason) => settle(() => aside.park(raw, reason, attempt).then(ack)),
      release: () => settle(() => giveBack(raw)),
    };
  }

  function arrivalOf(raw: ConsumeMessage): Arrival {
    const { exchange } = raw.fields;
    try {
      const message = fromAmqp(raw as Parameters<typeof fromAmqp>[0], { exchange, unprefixed, maxMessageBytes });
      return { raw, read: message, bytes: messageBytes(message) };
    } catch (error) {
      return { raw, read: error as Error, bytes: raw.content.length };
    }
  }

  async function deliver(arrival: Arrival): Promise<void> {
    const { raw, read } = arrival;
    if (read instanceof Error) {
      const { consumer } = subscription;
      const id = idOf(raw);
      const settle = settling(arrival, id);
      await settle(() => aside.park(raw, read).then(() => acks.add(raw.fields.deliveryTag))).then(
        () => telemetry({ name: "delivery.parked", consumer, id, error: read }),
        (error: Error) => {
          if (lost === undefined)
            telemetry({ name: "delivery.retried", consumer, id, attempt: attemptOf(raw), retryInMs: pauseMs, error });
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
  function fits({ bytes }: Arrival): boolean {
    return unsettled === 0 || unsettledBytes + bytes <= prefetchBytes;
  }

  /** One at a time: the next when the last was taken. */
  async function deliverAll(): Promise<void> {
    if (delivering) return;
    delivering = true;
    while (lost === undefined && !signal.aborted) {
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

  await channel.prefetch(prefetch);
  const { consumerTag } = await channel.consume(queue, (raw) => {
    if (raw === null) return lose(`the queue ${queue} was deleted, or its consumers cancelled`);
    acks.opened(raw.fields.deliveryTag);
    buffered.push(arrivalOf(raw));
    void deliverAll();
  });
  ready();
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
    if (lost === undefined) {
      await channel.cancel(consumerTag).catch(() => {});
      await until(() => !delivering || lost !== undefined);
      for (const { raw } of buffered.splice(0)) giveBack(raw);
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

const pauseMs = 1000;

function attemptOf({ fields, properties }: ConsumeMessage): number {
  const headers = properties.headers ?? {};
  const before = Number(headers["x-delivery-count"] ?? (fields.redelivered ? 1 : 0));
  const own = Number(headers[attemptHeader]);
  // Anybody can write a header.
  return (Number.isSafeInteger(own) && own >= 1 ? own : 1) + before;
}
