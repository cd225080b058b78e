import { PostboxError, TransportDownError } from "../../errors.js";
import type { EventDefinition } from "../../event/define-event.js";
import { longestTimerMs, runtimeWith } from "../../internal/runtime.js";
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
import { type Route, routeOf } from "./route.js";
import { declareExchanges } from "./topology.js";
import { createWatch } from "./watch.js";

export interface RabbitmqSenderOptions extends RabbitmqConnectionOptions {
  /** Where a message goes. Defaults to the exchange of its topic's name, with the last part of its type as the routing key. */
  readonly route?: (message: Pick<Message, "topic" | "type">) => Route;
  /**
   * What becomes of a message that no queue takes, or whose exchange is missing: `park` it after the relay's attempts, `drop` it, or let it
   * `wait`; or a function that chooses by message. A direct publisher rejects with `park` and `wait`, and resolves with `drop`. Defaults to
   * `park`.
   */
  readonly onUnroutable?: OnUnroutable;
  /** How an event is written: its attributes as headers, or all of it as JSON. Defaults to `binary`. */
  readonly mode?: ContentMode;
  /** How long the broker has to confirm what goes there in one call. After that its connection is given up. Defaults to 30,000. */
  readonly publishTimeoutMs?: number;
  /**
   * The broker's `max_message_size`, which is 16 MiB in RabbitMQ 4 and 128 MiB in RabbitMQ 3: a larger body is rejected before it is sent. If
   * the broker takes less, the sender learns its limit from the first body that is refused. Defaults to 16 MiB.
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

/** For how long a connection that was made after a close waits for more. */
const lingerMs = 1000;

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
 * Sends to RabbitMQ: persistent, mandatory and confirmed. A message is `sent` when the broker has confirmed that it is in at least one
 * queue; `onUnroutable` decides about one that no queue takes. It connects with the first message, and again when the connection is lost.
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
  const unrouted = (message: Message, error: PostboxError) => unroutableOutcome(onUnroutable, message, error, runtime);
  let sending = 0;
  const idlers: (() => void)[] = [];
  /** Whether it was closed, and not connected for a run since. */
  let closed = false;
  let cancelEnd = () => {};

  async function ready(signal: AbortSignal): Promise<Link> {
    signal.throwIfAborted();
    const link = links.current ?? (await within(signal, links.get()));
    // A publish would only wait in the socket's buffer.
    if (watch.blockedBy === undefined) return link;
    throw new TransportDownError("connect", `${place} takes no messages at the moment: ${watch.blockedBy}`);
  }

  /** The exchanges first: to publish to one that is not there would cost the channel, and all that is on its way there. */
  async function carry(link: Link, batch: Batch): Promise<void> {
    await batch.publish(await link.missing(batch.exchanges));
    await batch.confirmed();
  }

  /** What `work` resolves to, or nothing after `ms`. Rejects with the signal's reason as soon as that is aborted. */
  function within(signal: AbortSignal, work: Promise<Link>): Promise<Link>;
  function within(signal: AbortSignal, work: Promise<void>, ms: number): Promise<void>;
  function within<R>(signal: AbortSignal, work: Promise<R>, ms = longestTimerMs): Promise<R | undefined> {
    // By hand, since this is done for every batch, and batches may be of one message: an aborted controller would cost most of it.
    return new Promise((resolve, reject) => {
      const end = () => {
        cancel();
        signal.removeEventListener("abort", abort);
      };
      const abort = () => {
        end();
        reject(signal.reason);
      };
      const cancel = runtime.schedule(() => {
        end();
        resolve(undefined);
      }, ms);
      signal.addEventListener("abort", abort, { once: true });
      if (signal.aborted) abort();
      work.finally(end).then(resolve, reject);
    });
  }

  function begun(): void {
    sending++;
    cancelEnd();
  }

  /** What is sent after a close still gets a connection. It ends when nothing follows: no process is kept alive by it. */
  function ended(): void {
    if (--sending > 0) return;
    for (const idle of idlers.splice(0)) idle();
    if (closed) cancelEnd = runtime.schedule(() => void links.close(), lingerMs);
  }

  async function close(): Promise<void> {
    closed = true;
    // Whoever else sends through it is not disturbed.
    if (sending > 0) await new Promise<void>((resolve) => idlers.push(resolve));
    cancelEnd();
    await links.close();
  }

  async function sendBatch(...[messages, settled, signal]: Parameters<Sender["send"]>): Promise<void> {
    const link = await ready(signal);
    const batch = createBatch(link, messages, { place, route, mode, maxMessageBytes: mostBytes, unrouted }, settled);
    try {
      await within(signal, carry(link, batch), publishTimeoutMs);
      if (batch.unreported === 0) return;
      // One that is blocked says when it is not any more. Another one would not know, and take the same messages again.
      const isLate = !link.lost;
      if (isLate && watch.blockedBy === undefined) link.giveUp("it did not answer in time");
      // Only the channel was closed, and the broker is well: for an exchange that was deleted or may not be written to, or for what it will not take.
      const { code, message: said = "" } = link.reason ?? {};
      if (code === 404 || code === 403) return batch.failAt(code, said);
      const limit = code === 406 ? /larger than (?:configured )?max size (\d+)/.exec(said)?.[1] : undefined;
      if (limit !== undefined) {
        mostBytes = Math.min(mostBytes, Number(limit));
        return batch.rejectLarger(mostBytes);
      }
      if (code === 406 && messages.length === 1) return batch.rejectOnly(said);
      const why = watch.blockedBy ?? link.reason?.message ?? "no answer";
      const text = `${place} has not confirmed ${batch.unreported} of ${messages.length} messages: ${why}`;
      // Slow is no death, nor is blocked: nothing that was on its way is suspected of it.
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
      closed = false;
      await ready(signal);
    },

    async send(messages, settled, signal) {
      signal.throwIfAborted();
      if (messages.length === 0) return;
      begun();
      try {
        await sendBatch(messages, settled, signal);
      } finally {
        ended();
      }
    },

    async setup(events) {
      const { connection } = await links.get();
      await declareExchanges(
        connection,
        events.map((event) => route(event).exchange),
      );
    },

    health: () => watch.health(),
    close,
    [Symbol.asyncDispose]: close,
  };
}
