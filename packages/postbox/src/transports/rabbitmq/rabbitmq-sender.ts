import { PostboxError, TransportDownError } from "../../errors.js";
import type { EventDefinition } from "../../event/define-event.js";
import { runtimeWith } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import { callback, checkOptions, count, oneOf, positive } from "../../options.js";
import type { Telemetry } from "../../telemetry/events.js";
import { telling } from "../../telemetry/telling.js";
import type { Sender, TransportHealth } from "../../transport.js";
import { type OnUnroutable, onUnroutableRule, unroutableOutcome } from "../unroutable.js";
import type { ContentMode } from "./amqp-message.js";
import { type Batch, createBatch } from "./batch.js";
import { connectionRules, placeOf, type RabbitmqConnectionOptions } from "./connection.js";
import { createLinks, type Link } from "./link.js";
import { createLinkUse } from "./link-use.js";
import { type Route, routeOf } from "./route.js";
import { declareExchanges } from "./topology.js";
import { createWatch } from "./watch.js";
import { within } from "./within.js";

export interface RabbitmqSenderOptions extends RabbitmqConnectionOptions {
  /**
   * Where a message goes. Defaults to the exchange of its topic's name, with the last part of its type as the routing
   * key.
   */
  readonly route?: (message: Pick<Message, "topic" | "type">) => Route;
  /**
   * What becomes of a message that no queue takes, or whose exchange is missing: `park` it after the relay's attempts,
   * `drop` it, or let it `wait`; or a function that chooses by message. A direct publisher rejects with `park` and
   * `wait`, and resolves with `drop`. Defaults to `park`.
   */
  readonly onUnroutable?: OnUnroutable;
  /** How an event is written: its attributes as headers, or all of it as JSON. Defaults to `binary`. */
  readonly mode?: ContentMode;
  /**
   * How long the broker has to confirm what goes there in one call. After that its connection is given up. Defaults to
   * 30,000.
   */
  readonly publishTimeoutMs?: number;
  /**
   * The broker's `max_message_size`, which is 16 MiB in RabbitMQ 4 and 128 MiB in RabbitMQ 3: a larger body is rejected
   * before it is sent. If the broker takes less, the sender learns its limit from the first body that is refused.
   * Defaults to 16 MiB.
   */
  readonly maxMessageBytes?: number;
  /** Listens to what happens to the connection. Defaults to warnings and errors on the console; `silent` is nobody. */
  readonly telemetry?: Telemetry;
}

export interface RabbitmqSender extends Sender {
  /** Makes the exchanges of these events, durable, of type `topic`. */
  setup(events: readonly Pick<EventDefinition, "topic" | "type">[]): Promise<void>;
  health(): TransportHealth;
  close(): Promise<void>;
  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

const rules = {
  ...connectionRules,
  route: callback,
  onUnroutable: onUnroutableRule,
  mode: oneOf("binary", "structured"),
  publishTimeoutMs: positive,
  maxMessageBytes: count,
  telemetry: callback,
};

/**
 * Sends to RabbitMQ: persistent, mandatory and confirmed. A message is `sent` when the broker has confirmed that it is
 * in at least one queue; `onUnroutable` decides about one that no queue takes. It connects with the first message, and
 * again when the connection is lost.
 */
export function rabbitmqSender(options: RabbitmqSenderOptions): RabbitmqSender {
  checkOptions("rabbitmqSender", options, rules, ["url"]);
  const { route = routeOf, mode = "binary", publishTimeoutMs = 30_000, maxMessageBytes = 16 * 1024 * 1024 } = options;
  const { onUnroutable = "park" } = options;
  const place = placeOf(options.url);
  /** Lower than asked for, once the broker has told its own limit. */
  let mostBytes = maxMessageBytes;
  const runtime = runtimeWith();
  const watch = createWatch(
    { end: "sender", whose: options.connectionName ?? "postbox", place },
    telling(options.telemetry),
  );
  const links = createLinks(options, watch);
  const use = createLinkUse(links, runtime);
  const unrouted = (message: Message, error: PostboxError) => unroutableOutcome(onUnroutable, message, error, runtime);

  async function ready(signal: AbortSignal): Promise<Link> {
    signal.throwIfAborted();
    const link = links.current ?? (await within(runtime, signal, links.get()));
    // A publish would only wait in the socket's buffer.
    if (watch.blockedBy === undefined) return link;
    throw new TransportDownError("connect", `${place} takes no messages at the moment: ${watch.blockedBy}`);
  }

  async function sendBatch(...[messages, settled, signal]: Parameters<Sender["send"]>): Promise<void> {
    const link = await ready(signal);
    const batch = createBatch(link, messages, { place, route, mode, maxMessageBytes: mostBytes, unrouted }, settled);
    try {
      await within(runtime, signal, publishAll(link, batch), publishTimeoutMs);
      if (batch.unreported === 0) return;
      // A blocked broker tells when it takes messages again. A new connection would not know, and take the same
      // messages again.
      const isLate = !link.lost;
      if (isLate && watch.blockedBy === undefined) link.giveUp("it did not answer in time");
      const limit = limitToldBy(link);
      if (limit !== undefined) mostBytes = Math.min(mostBytes, limit);
      if (explainedByClose(link, batch, messages.length, mostBytes)) return;
      const why = watch.blockedBy ?? link.reason?.message ?? "no answer";
      const text = `${place} has not confirmed ${batch.unreported} of ${messages.length} messages: ${why}`;
      // A slow or blocked broker is no crash: the messages in flight are not suspected of it.
      if (watch.blockedBy !== undefined) throw new TransportDownError("connect", text);
      if (isLate && batch.begun) throw new PostboxError("publish-timeout", `${text} within ${publishTimeoutMs} ms`);
      throw new TransportDownError(batch.begun ? "send" : "connect", text);
    } finally {
      batch.end();
    }
  }

  return {
    name: "rabbitmq",
    keepsOrder: false,

    async connect(signal) {
      use.reopen();
      await ready(signal);
    },

    async send(messages, settled, signal) {
      signal.throwIfAborted();
      if (messages.length > 0) await use.during(() => sendBatch(messages, settled, signal));
    },

    async setup(events) {
      const { connection } = await links.get();
      await declareExchanges(
        connection,
        events.map((event) => route(event).exchange),
      );
    },

    health: () => watch.health(),
    close: () => use.close(),
    [Symbol.asyncDispose]: () => use.close(),
  };
}

/** Asks for the exchanges first: a publish to a missing one closes the channel for every message in flight on it. */
async function publishAll(link: Link, batch: Batch): Promise<void> {
  await batch.publish(await link.missing(batch.exchanges));
  await batch.confirmed();
}

/** The most bytes that the broker takes, if it has closed the channel because of a larger body. */
function limitToldBy({ reason }: Link): number | undefined {
  if (reason?.code !== 406) return undefined;
  const limit = /larger than (?:configured )?max size (\d+)/.exec(reason.message)?.[1];
  return limit === undefined ? undefined : Number(limit);
}

/**
 * Gives each message its outcome if the broker is healthy and has closed the channel only: for an exchange that was
 * deleted or may not be written to, or for a message that it does not take. Returns whether that is so.
 */
function explainedByClose(link: Link, batch: Batch, count: number, mostBytes: number): boolean {
  const { code, message: said = "" } = link.reason ?? {};
  if (code === 404 || code === 403) batch.failAt(code, said);
  else if (limitToldBy(link) !== undefined) batch.rejectLarger(mostBytes);
  else if (code === 406 && count === 1) batch.rejectOnly(said);
  else return false;
  return true;
}
