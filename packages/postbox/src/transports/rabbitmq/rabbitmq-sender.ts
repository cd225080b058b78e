import type { ChannelModel } from "amqplib";
import { PostboxError, TransportDownError } from "../../errors.js";
import type { EventDefinition } from "../../event/define-event.js";
import { runtimeWith, sleep } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import { callback, checkOptions, count, oneOf, positive } from "../../options.js";
import type { Outcome, Sender } from "../../transport.js";
import { type AmqpMessage, type ContentMode, toAmqp } from "./amqp-message.js";
import { type Confirmation, type ConfirmedPublishing, confirmedPublishing, unroutable } from "./confirms.js";
import { connectionRules, destroy, openConnection, placeOf, type RabbitmqConnectionOptions } from "./connection.js";
import { type Route, routeOf } from "./route.js";
import { declareExchanges, exchangeExists } from "./topology.js";

export interface RabbitmqSenderOptions extends RabbitmqConnectionOptions {
  /** Where a message goes. Defaults to the exchange of its topic's name, with the last part of its type as the routing key. */
  readonly route?: (message: Pick<Message, "topic" | "type">) => Route;
  /** How an event is written: its attributes as headers, or all of it as JSON. Defaults to `binary`. */
  readonly mode?: ContentMode;
  /** How long the broker has to confirm. After that its connection is given up. Defaults to 30,000. */
  readonly publishTimeoutMs?: number;
  /** The broker's `max_message_size`: a larger body is rejected before it is sent. Defaults to 16 MiB. */
  readonly maxMessageBytes?: number;
}

export interface RabbitmqSender extends Sender {
  /** Makes the exchanges of these events, durable, of type `topic`. */
  setup(events: readonly Pick<EventDefinition, "topic" | "type">[]): Promise<void>;
  close(): Promise<void>;
}

const rules = {
  ...connectionRules,
  route: callback,
  mode: oneOf("binary", "structured"),
  publishTimeoutMs: positive,
  maxMessageBytes: count,
};

/** A connection with a channel for nothing but publishing. */
interface Link {
  readonly connection: ChannelModel;
  readonly publishing: ConfirmedPublishing;
  /** The exchanges that are known to be there. */
  readonly exchanges: Set<string>;
  /** Why the broker takes nothing at the moment. */
  blocked?: string;
  lost: boolean;
  /** What the broker said when it closed the channel. */
  reason?: { readonly code?: number; readonly message: string };
}

/**
 * Sends to RabbitMQ: persistent, mandatory and confirmed. A message is `sent` when the broker has confirmed that it is in at least one
 * queue; one that no queue takes is `failed`. It connects with the first message, and again when the connection is lost.
 */
export function rabbitmqSender(options: RabbitmqSenderOptions): RabbitmqSender {
  checkOptions("rabbitmqSender", options, rules, ["url"]);
  const { route = routeOf, mode = "binary", publishTimeoutMs = 30_000, maxMessageBytes = 16 * 1024 * 1024 } = options;
  const place = placeOf(options.url);
  const runtime = runtimeWith();
  let opening: Promise<Link> | undefined;
  let current: Link | undefined;

  /** One that is given up may hear of its end when there is another one already. */
  function forget(link: Link): void {
    link.lost = true;
    if (current === link) current = opening = undefined;
  }

  async function open(): Promise<Link> {
    const connection = await openConnection(options);
    const channel = await connection.createConfirmChannel();
    const link: Link = { connection, publishing: confirmedPublishing(channel), exchanges: new Set(), lost: false };
    current = link;
    const lose = () => {
      forget(link);
      connection.close().catch(() => {});
    };
    channel.on("error", (error) => {
      link.reason = error;
    });
    channel.on("close", lose);
    connection.on("blocked", (reason) => {
      link.blocked = reason;
    });
    connection.on("unblocked", () => {
      delete link.blocked;
    });
    return link;
  }

  /** Whatever is still on its way there, nobody waits for its confirm any more. */
  function giveUp(link: Link): void {
    forget(link);
    destroy(link.connection);
  }

  /** One for all who ask at once. */
  function linked(): Promise<Link> {
    if (opening === undefined) {
      const own = open();
      opening = own;
      own.catch(() => {
        if (opening === own) opening = undefined;
      });
    }
    return opening;
  }

  async function ready(signal: AbortSignal): Promise<Link> {
    signal.throwIfAborted();
    const link = await orAborted(linked(), signal);
    // A publish would only wait in the socket's buffer.
    if (link.blocked === undefined) return link;
    throw new TransportDownError("connect", `${place} takes no messages at the moment: ${link.blocked}`);
  }

  async function missingExchanges(link: Link, routes: readonly Route[]): Promise<ReadonlySet<string>> {
    const missing = new Set<string>();
    try {
      for (const name of new Set(routes.map(({ exchange }) => exchange))) {
        if (link.exchanges.has(name)) continue;
        if (await exchangeExists(link.connection, name)) link.exchanges.add(name);
        else missing.add(name);
      }
    } catch (error) {
      throw new TransportDownError("connect", `${place} was lost: ${(error as Error).message}`);
    }
    return missing;
  }

  /** What can be said of a message before it is sent. */
  function refusal(
    { id }: Message,
    { exchange }: Route,
    missing: ReadonlySet<string>,
    amqp: AmqpMessage,
  ): Outcome | undefined {
    if (missing.has(exchange)) return { status: "failed", error: noExchange(id, exchange) };
    const { length } = amqp.content;
    if (length <= maxMessageBytes) return undefined;
    const text = `message ${id} has ${length} bytes, ${place} takes ${maxMessageBytes}; send a reference instead`;
    return { status: "rejected", error: new PostboxError("message-too-large", text) };
  }

  function outcomeOf(how: Exclude<Confirmation, "lost">, { id }: Message, { exchange, routingKey }: Route): Outcome {
    if (how === "routed") return { status: "sent" };
    if (how === "unroutable") return { status: "failed", error: unroutable(id, exchange, routingKey) };
    const text = `${place} could not take message ${id} into all of its queues; it is sent again`;
    return { status: "failed", error: new PostboxError("publish-failed", text) };
  }

  return {
    name: "rabbitmq",
    keepsOrder: false,

    async connect(signal) {
      await ready(signal);
    },

    async send(messages, settled, signal) {
      signal.throwIfAborted();
      if (messages.length === 0) return;
      const link = await ready(signal);
      const routes = messages.map((message) => route(message));
      const stop = new AbortController();
      const late = sleep(runtime, publishTimeoutMs, stop.signal);
      const waiting = new Set<number>();
      const unreported = new Set(messages.keys());
      let empty = () => {};
      let over = false;
      const report = (index: number, outcome: Outcome) => {
        if (over) return;
        unreported.delete(index);
        settled(index, outcome);
      };
      try {
        const missing = await orAborted(Promise.race([missingExchanges(link, routes), late]), signal);
        if (missing === undefined) {
          giveUp(link);
          throw new TransportDownError("connect", `${place} gives no answer`);
        }
        for (const [index, message] of messages.entries()) {
          const to = routes[index] as Route;
          const amqp = toAmqp(message, mode);
          const refused = refusal(message, to, missing, amqp);
          if (refused !== undefined) {
            report(index, refused);
            continue;
          }
          if (!link.publishing.room) await orAborted(Promise.race([link.publishing.drained(), late]), signal);
          if (link.lost) break;
          waiting.add(index);
          const done = (how: Confirmation) => {
            if (how !== "lost") {
              waiting.delete(index);
              report(index, outcomeOf(how, message, to));
            }
            if (waiting.size === 0 || how === "lost") empty();
          };
          try {
            link.publishing.publish(to.exchange, to.routingKey, amqp, done);
          } catch (cause) {
            if (link.lost) break;
            // Headers beyond what the protocol can carry.
            waiting.delete(index);
            const error = new PostboxError(
              "message-invalid",
              `message ${message.id} cannot be sent: ${(cause as Error).message}`,
            );
            report(index, { status: "rejected", error });
          }
        }
        if (!link.lost && waiting.size > 0) {
          const confirmed = new Promise<void>((resolve) => {
            empty = resolve;
          });
          await orAborted(Promise.race([confirmed, late]), signal);
        }
        if (unreported.size === 0) return;
        if (!link.lost) giveUp(link);
        if (link.reason?.code === 404) {
          // An exchange that was there a moment ago: the broker is well, and only the channel has paid for it.
          for (const index of [...unreported]) {
            report(index, withoutExchange(messages[index] as Message, routes[index] as Route, link.reason.message));
          }
          return;
        }
        throw new TransportDownError(
          "send",
          `${place} was lost before it confirmed ${unreported.size} of ${messages.length} messages`,
        );
      } finally {
        over = true;
        stop.abort();
      }
    },

    async setup(events) {
      const { connection } = await linked();
      await declareExchanges(
        connection,
        events.map((event) => route(event).exchange),
      );
    },

    async close() {
      const link = await opening?.catch(() => undefined);
      await link?.connection.close().catch(() => {});
    },
  };
}

function withoutExchange({ id }: Message, { exchange }: Route, reason: string): Outcome {
  if (reason.includes(`'${exchange}'`)) return { status: "failed", error: noExchange(id, exchange) };
  const text = `message ${id} was on a channel that the broker closed for another one: ${reason}`;
  return { status: "failed", error: new PostboxError("publish-failed", text), uncounted: true };
}

function noExchange(id: string, exchange: string): PostboxError {
  const text = `there is no exchange ${exchange} for message ${id}; start its consumer first, or call sender.setup([event])`;
  return new PostboxError("unroutable", text);
}

/** Rejects with the signal's reason as soon as it is aborted. */
async function orAborted<R>(work: Promise<R>, signal: AbortSignal): Promise<R> {
  let cancel = () => {};
  const aborted = new Promise<never>((_, reject) => {
    const stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    cancel = () => signal.removeEventListener("abort", stop);
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    cancel();
  }
}
