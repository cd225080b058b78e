import { PostboxError, TransportDownError } from "../../errors.js";
import type { EventDefinition } from "../../event/define-event.js";
import { runtimeWith } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import { callback, checkOptions, count, oneOf, positive } from "../../options.js";
import type { Telemetry } from "../../telemetry/events.js";
import { telling } from "../../telemetry/telling.js";
import type { Sender, TransportHealth } from "../../transport.js";
import { createLinkUse } from "../link-use.js";
import { type OnUnroutable, onUnroutableRule, unroutableOutcome } from "../unroutable.js";
import { within } from "../within.js";
import type { ContentMode } from "./amqp-message.js";
import { type Batch, createBatch } from "./batch.js";
import { connectionRules, placeOf, type RabbitmqConnectionOptions } from "./connection.js";
import { createLinks, type Link } from "./link.js";
import { type Route, routeOf } from "./route.js";
import { declareExchanges } from "./topology.js";
import { createWatch } from "./watch.js";

/** Options of `rabbitmqSender`. */
export interface RabbitmqSenderOptions extends RabbitmqConnectionOptions {
  /**
   * Where to publish a message. Defaults to the exchange with the name of its topic, and the last part of its type as
   * the routing key.
   */
  readonly route?: (message: Pick<Message, "topic" | "type">) => Route;
  /**
   * What to do with a message that no queue is bound for, or whose exchange is missing: `park` it after the relay's
   * attempts, `drop` it, let it `wait`, or a function that chooses by message. A direct publisher rejects with `park`
   * and `wait`, and resolves with `drop`. Defaults to `park`.
   */
  readonly onUnroutable?: OnUnroutable;
  /** How to encode an event: attributes as headers, or all of it as JSON. Defaults to `binary`. */
  readonly mode?: ContentMode;
  /**
   * How long the broker may take to confirm the messages of one call. After that, the connection is closed. Defaults to
   * 30,000.
   */
  readonly publishTimeoutMs?: number;
  /**
   * The broker's `max_message_size`, which is 16 MiB in RabbitMQ 4 and 128 MiB in RabbitMQ 3. A larger body is rejected
   * before it is sent. If the broker's limit is lower, the sender learns it from the first refusal. Defaults to 16 MiB.
   */
  readonly maxMessageBytes?: number;
  /** Receives the events of its connection. Defaults to warnings and errors on the console; `silent` turns that off. */
  readonly telemetry?: Telemetry;
}

export interface RabbitmqSender extends Sender {
  /** Makes the exchanges of these events: durable, of type `topic`. */
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
 * Sends to RabbitMQ: persistent, mandatory and confirmed. A message is `sent` when the broker has confirmed that at
 * least one queue has it; `onUnroutable` decides about one without a queue. It connects with the first message, and
 * reconnects after the connection was lost.
 *
 * @example
 * ```ts
 * const sender = rabbitmqSender({ url: "amqp://localhost" });
 * await createRelay(store, sender).start();
 * ```
 */
export function rabbitmqSender(options: RabbitmqSenderOptions): RabbitmqSender {
  checkOptions("rabbitmqSender", options, rules, ["url"]);
  const { route = routeOf, mode = "binary", publishTimeoutMs = 30_000, maxMessageBytes = 16 * 1024 * 1024 } = options;
  const { onUnroutable = "park" } = options;
  const place = placeOf(options.url);
  /** Lower than the option if the broker's own limit is lower. */
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
      // A blocked broker tells this connection when it accepts messages again. A new connection would not learn of it,
      // and would send the same messages again.
      const isLate = !link.lost;
      if (isLate && watch.blockedBy === undefined) link.giveUp("it did not answer in time");
      const limit = limitToldBy(link);
      if (limit !== undefined) mostBytes = Math.min(mostBytes, limit);
      if (explainedByClose(link, batch, messages.length, mostBytes)) return;
      const why = watch.blockedBy ?? link.reason?.message ?? "no answer";
      const text = `${place} has not confirmed ${batch.unreported} of ${messages.length} messages: ${why}`;
      // A slow or blocked broker is no crash, so the messages in flight are not suspected.
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

/** Checks the exchanges first: a publish to a missing one closes the channel for every message in flight on it. */
async function publishAll(link: Link, batch: Batch): Promise<void> {
  await batch.publish(await link.missing(batch.exchanges));
  await batch.confirmed();
}

/** The broker's limit, if it closed the channel because of a larger body. */
function limitToldBy({ reason }: Link): number | undefined {
  if (reason?.code !== 406) return undefined;
  const limit = /larger than (?:configured )?max size (\d+)/.exec(reason.message)?.[1];
  return limit === undefined ? undefined : Number(limit);
}

/**
 * Sets each message's outcome if the broker has only closed the channel: for an exchange that was deleted or may not be
 * written to, or for a message that it does not accept. Returns whether that was the case.
 */
function explainedByClose(link: Link, batch: Batch, count: number, mostBytes: number): boolean {
  const { code, message: said = "" } = link.reason ?? {};
  if (code === 404 || code === 403) batch.failAt(code, said);
  else if (limitToldBy(link) !== undefined) batch.rejectLarger(mostBytes);
  else if (code === 406 && count === 1) batch.rejectOnly(said);
  else return false;
  return true;
}
