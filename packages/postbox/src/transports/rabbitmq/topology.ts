import type { Channel, ChannelModel } from "amqplib";
import { ConfigError } from "../../errors.js";
import { close } from "./connection.js";

/*
 * The queues of a consumer. All are durable:
 *
 * - `<queue>`: its messages; a quorum queue by default. What the broker itself gives up goes to `<queue>.parked`.
 * - `<queue>.wait.<ms>`: retried messages. They expire there after this long, and return to `<queue>`. One queue for
 *   each delay, since only the first message of a queue can expire.
 * - `<queue>.parked`: messages that were given up, with the reason.
 *
 * None of them drops a message to make room, unless a policy says so: a full queue refuses a publish, and the publisher
 * learns of it.
 */

/** Whether to make queues and exchanges, to check that they exist, or neither. */
export type Topology = "declare" | "check" | "none";

export interface QueueOptions {
  readonly queue: string;
  readonly queueType: "quorum" | "classic";
  readonly singleActiveConsumer: boolean;
}

export interface Wanted {
  readonly exchange: string;
  readonly routingKey: string;
}

export const parkedQueue = (queue: string): string => `${queue}.parked`;

/**
 * How often a quorum queue delivers a message without learning an outcome before it moves the message to
 * `<queue>.parked`. It does not count attempts: it is the last resort against a message that crashes every process.
 * The default of RabbitMQ 4.
 */
const deliveryLimit = 20;
/**
 * For queues that must never drop a message. RabbitMQ 3 has no other way to say "never", and RabbitMQ 4 drops at 20 by
 * default.
 */
const noDeliveryLimit = 1_000_000;

export interface WaitQueue {
  readonly name: string;
  readonly ttlMs: number;
}

/** Delays grow by a factor of two, so there are few queues, and a message waits at most twice as long as requested. */
export function waitQueue(queue: string, delayMs: number): WaitQueue {
  const ttlMs = 2 ** Math.ceil(Math.log2(Math.max(shortestMs, Math.min(delayMs, longestMs))));
  return { name: `${queue}.wait.${ttlMs}`, ttlMs };
}
const shortestMs = 64;
const longestMs = 2 ** 30;

/** Makes what a consumer needs, or checks that it exists. */
export async function prepareQueue(connection: ChannelModel, options: QueueOptions, topology: Topology): Promise<void> {
  if (topology === "none") return;
  const { queue, singleActiveConsumer } = options;
  if (topology === "check") {
    for (const name of [queue, parkedQueue(queue)])
      await exists(connection, name, (channel) => channel.checkQueue(name));
    return;
  }
  await onChannel(connection, async (channel) => {
    // First, since the other queue dead-letters to it.
    await channel.assertQueue(parkedQueue(queue), queueArguments(options, noDeliveryLimit));
    await channel.assertQueue(
      queue,
      queueArguments(options, deliveryLimit, {
        ...deadLetters(options, parkedQueue(queue)),
        ...(singleActiveConsumer && { "x-single-active-consumer": true }),
      }),
    );
  });
}

/** Makes a wait queue, unless it exists. */
export async function prepareWait(connection: ChannelModel, options: QueueOptions, wait: WaitQueue): Promise<void> {
  const { name, ttlMs } = wait;
  await onChannel(connection, (channel) =>
    channel.assertQueue(
      name,
      queueArguments(options, noDeliveryLimit, { "x-message-ttl": ttlMs, ...deadLetters(options, options.queue) }),
    ),
  );
}

export async function bindQueue(
  connection: ChannelModel,
  queue: string,
  wanted: readonly Wanted[],
  exchanges: Topology,
): Promise<void> {
  await onChannel(connection, async (channel) => {
    for (const { exchange, routingKey } of wanted) {
      if (exchanges === "declare") await channel.assertExchange(exchange, "topic", { durable: true });
      await channel.bindQueue(queue, exchange, routingKey).catch((error) => {
        if (error.code !== 404) throw error;
        throw missing(`exchange ${exchange} to bind queue ${queue} to, or no such queue`);
      });
    }
  });
}

export async function declareExchanges(connection: ChannelModel, names: Iterable<string>): Promise<void> {
  await onChannel(connection, async (channel) => {
    for (const name of new Set(names)) await channel.assertExchange(name, "topic", { durable: true });
  });
}

/**
 * Messages that the broker itself removes from the queue go to queue `to`. A quorum queue keeps each until it has
 * arrived there.
 */
function deadLetters({ queueType }: QueueOptions, to: string): Record<string, unknown> {
  const safely = queueType === "quorum" ? { "x-dead-letter-strategy": "at-least-once" } : {};
  return { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": to, ...safely };
}

function queueArguments({ queueType }: QueueOptions, limit: number, more: Record<string, unknown> = {}) {
  const limited = queueType === "quorum" ? { "x-delivery-limit": limit } : {};
  // Also effective for a length limit that an operator sets later by a policy.
  const overflow = { "x-overflow": "reject-publish" };
  return { durable: true, arguments: { "x-queue-type": queueType, ...limited, ...overflow, ...more } };
}

/** A channel of its own: the broker closes a channel that asks for something that does not exist. */
async function onChannel<R>(connection: ChannelModel, work: (channel: Channel) => Promise<R>): Promise<R> {
  const channel = await connection.createChannel();
  channel.on("error", () => {});
  try {
    return await work(channel);
  } catch (error) {
    throw explained(error);
  } finally {
    await close(channel).catch(() => {});
  }
}

/** Whether an exchange exists. */
export async function exchangeExists(connection: ChannelModel, name: string): Promise<boolean> {
  if (name === "") return true;
  try {
    await onChannel(connection, (channel) => channel.checkExchange(name));
    return true;
  } catch (error) {
    if ((error as { code?: number }).code === 404) return false;
    throw error;
  }
}

async function exists(
  connection: ChannelModel,
  name: string,
  ask: (channel: Channel) => Promise<unknown>,
): Promise<void> {
  try {
    await onChannel(connection, ask);
  } catch (error) {
    if ((error as { code?: number }).code !== 404) throw error;
    throw missing(`queue ${name}`);
  }
}

export function missing(what: string): ConfigError {
  return new ConfigError("topology-missing", `there is no ${what}; make it, or choose topology: "declare"`);
}

/** Turns a refusal of the broker into an error that says what to do. Other errors pass. */
function explained(cause: unknown): unknown {
  const { code, message } = cause as { readonly code?: number; readonly message: string };
  const said = message.replace(/^.*?(PRECONDITION_FAILED|ACCESS_REFUSED) - /, "").replace(/"$/, "");
  if (code === 406) {
    const text =
      `what exists differs from what the options ask for: ${said}; change the options, set topology: "check", or ` +
      "move the consumer to a new queue: the guide to RabbitMQ says how";
    return new ConfigError("topology-differs", text, { cause });
  }
  if (code === 403) {
    return new ConfigError(
      "transport-refused",
      `the user lacks a right: ${said}; grant it, or make the queues with another user`,
      { cause },
    );
  }
  return cause;
}
