import type { ChannelModel, ConsumeMessage } from "amqplib";
import { PostboxError, TransportDownError } from "../../errors.js";
import { scrub } from "../../internal/scrub.js";
import type { Delivery, Subscription } from "../../transport.js";
import { fromAmqp } from "./amqp-message.js";
import { confirmedPublishing, unroutable } from "./confirms.js";
import { attemptHeader, copyOf, reasonHeader } from "./copy.js";
import { parkedQueue, prepareWait, type QueueOptions, type Topology, waitQueue } from "./topology.js";

export interface ConsumeOptions {
  readonly queue: QueueOptions;
  readonly topology: Topology;
  readonly prefetch: number;
  readonly unprefixed: boolean;
  readonly maxMessageBytes: number;
}

/**
 * Hands over what the queue has, one after the other, until the signal is aborted and everything is settled. Rejects when the
 * connection is lost, or the queue deleted; what is unsettled then is delivered again.
 */
export async function consume(
  connection: ChannelModel,
  { queue: options, topology, prefetch, unprefixed, maxMessageBytes }: ConsumeOptions,
  subscription: Subscription,
  signal: AbortSignal,
): Promise<void> {
  const { queue } = options;
  const channel = await connection.createChannel();
  const publishing = await connection.createConfirmChannel();
  const copies = confirmedPublishing(publishing);
  const waits = new Map<string, Promise<void>>();
  const buffered: ConsumeMessage[] = [];
  const unsettled = new Set<ConsumeMessage>();
  let lost: Error | undefined;
  let delivering = false;
  let changed = () => {};

  const lose = (why: string) => {
    lost ??= new TransportDownError("send", why);
    changed();
  };
  for (const each of [channel, publishing]) {
    each.on("error", (error) => lose(`RabbitMQ closed the channel: ${error.message}`));
    each.on("close", () => lose("the connection to RabbitMQ was lost"));
  }

  /** Publishes a copy, and acks the original once the broker has it: whoever dies in between leaves both. */
  async function move(raw: ConsumeMessage, to: string, headers: Record<string, unknown>): Promise<void> {
    const how = await new Promise<string>((resolve) => {
      copies.publish("", to, { content: raw.content, properties: copyOf(raw, headers) }, resolve);
    });
    if (how === "unroutable") {
      waits.clear();
      throw unroutable(String(raw.properties.messageId), "", to);
    }
    if (how !== "routed") throw new PostboxError("publish-failed", `RabbitMQ did not take the message into ${to}`);
    channel.ack(raw);
  }

  /** The queue to wait in, made once. */
  async function waitingFor(delayMs: number): Promise<string> {
    const wait = waitQueue(queue, delayMs);
    if (topology !== "declare") return wait.name;
    const known = waits.get(wait.name) ?? prepareWait(connection, options, wait);
    waits.set(wait.name, known);
    await known.catch((error) => {
      waits.delete(wait.name);
      throw error;
    });
    return wait.name;
  }

  function settling(raw: ConsumeMessage, id: string) {
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
        if (lost === undefined) channel.nack(raw, false, true);
        throw error;
      } finally {
        unsettled.delete(raw);
        changed();
      }
    };
  }

  function deliveryOf(raw: ConsumeMessage): Delivery {
    const { exchange, deliveryTag } = raw.fields;
    const message = fromAmqp(raw as Parameters<typeof fromAmqp>[0], { exchange, unprefixed, maxMessageBytes });
    const attempt = attemptOf(raw);
    const settle = settling(raw, message.id);
    return {
      message,
      attempt,
      origin: { partition: queue, offset: String(deliveryTag) },
      ack: () => settle(() => channel.ack(raw)),
      retry: (delayMs) => settle(async () => move(raw, await waitingFor(delayMs), { [attemptHeader]: attempt + 1 })),
      park: (reason) =>
        settle(() =>
          move(raw, parkedQueue(queue), { [attemptHeader]: attempt, [reasonHeader]: scrub(reason.message) }),
        ),
      release: () => settle(() => channel.nack(raw, false, true)),
    };
  }

  /** One at a time: the next when the last was taken. */
  async function deliverAll(): Promise<void> {
    if (delivering) return;
    delivering = true;
    while (lost === undefined && !signal.aborted) {
      const raw = buffered.shift();
      if (raw === undefined) break;
      unsettled.add(raw);
      let delivery: Delivery;
      try {
        delivery = deliveryOf(raw);
      } catch (error) {
        // What nobody can read.
        await settling(
          raw,
          String(raw.properties.messageId),
        )(() => move(raw, parkedQueue(queue), { [reasonHeader]: scrub((error as Error).message) })).catch(() => {});
        continue;
      }
      await subscription.deliver(delivery).catch(() => delivery.release().catch(() => {}));
    }
    delivering = false;
    changed();
  }

  await channel.prefetch(prefetch);
  const { consumerTag } = await channel.consume(queue, (raw) => {
    if (raw === null) return lose(`the queue ${queue} was deleted, or its consumers cancelled`);
    buffered.push(raw);
    void deliverAll();
  });
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
    if (lost === undefined) {
      await channel.cancel(consumerTag).catch(() => {});
      await until(() => !delivering || lost !== undefined);
      for (const raw of buffered.splice(0)) channel.nack(raw, false, true);
    }
    // Also of a lost connection, what was handed over is still in somebody's hands.
    await until(() => unsettled.size === 0 && !delivering);
    if (lost !== undefined) throw lost;
    // Acks are not answered: what comes after them on the channel is.
    await channel.close();
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

function attemptOf({ fields, properties }: ConsumeMessage): number {
  const headers = properties.headers ?? {};
  const before = Number(headers["x-delivery-count"] ?? (fields.redelivered ? 1 : 0));
  return Math.max(1, Number(headers[attemptHeader] ?? 1)) + before;
}
