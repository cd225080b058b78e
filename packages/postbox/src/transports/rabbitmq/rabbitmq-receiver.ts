import type { ChannelModel } from "amqplib";
import { type Backoff, exponential } from "../../backoff.js";
import { ConfigError } from "../../errors.js";
import { runtimeWith } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import { callback, checkOptions, count, flag, oneOf, positive, text } from "../../options.js";
import type { Telemetry } from "../../telemetry/events.js";
import { telling } from "../../telemetry/telling.js";
import type { Receiver, Subscription, TransportHealth } from "../../transport.js";
import { worst } from "../connection-watch.js";
import { type Attempt, stayConnected } from "../stay-connected.js";
import { close, connectionRules, openConnection, placeOf, type RabbitmqConnectionOptions } from "./connection.js";
import { consume } from "./consume.js";
import { createLinks } from "./link.js";
import { checkedRoute, type Route, routeOf } from "./route.js";
import { bindQueue, prepareQueue, type Topology } from "./topology.js";
import { createWatch, type Watch } from "./watch.js";

/** Options of `rabbitmqReceiver`. */
export interface RabbitmqReceiverOptions extends RabbitmqConnectionOptions {
  /** Receivers of one queue share its messages; every queue gets its own copy. Defaults to the consumer's name. */
  readonly queue?: string;
  /** Defaults to `quorum`. */
  readonly queueType?: "quorum" | "classic";
  /** The most unsettled deliveries at a time. Defaults to 100. */
  readonly prefetch?: number;
  /**
   * The most bytes of unsettled deliveries at a time; a larger message is delivered alone. The broker counts messages
   * only: up to `prefetch` of them are in memory, whatever their size, and wait here. Defaults to 16 MiB.
   */
  readonly prefetchBytes?: number;
  /** Whether to make the queues, to check that they exist, or neither. Defaults to `declare`. */
  readonly topology?: Topology;
  /**
   * Whether to bind the queue to the events of the consumer's handlers, and to make the exchanges for that. Defaults to
   * true.
   */
  readonly bindings?: boolean;
  /** Where the events of the bindings are published. Defaults to the default of the sender's `route`. */
  readonly route?: (event: Pick<Message, "topic" | "type">) => Route;
  /**
   * Only one receiver of the queue gets messages; when it ends, another one takes over. This keeps a key in order over
   * several processes. An argument of the queue, so all of its receivers need the same value. Defaults to false; unless
   * it is set, a durable inbox reports `router.unordered`.
   */
  readonly singleActiveConsumer?: boolean;
  /** Reads extensions from headers without a prefix, as older publishers write them. Defaults to false. */
  readonly unprefixed?: boolean;
  /** A message with a larger body is parked. Defaults to 16 MiB. */
  readonly maxMessageBytes?: number;
  /** The pause before it reconnects. Defaults to one that grows to 30 s, with jitter. */
  readonly backoff?: Backoff;
  /**
   * How long after its creation a message may still be redelivered; an inbox compares its retention with this. Defaults
   * to unknown.
   */
  readonly redeliveryWindowMs?: number;
  /**
   * Receives the events of its connections. Defaults to warnings and errors on the console; `silent` turns that off.
   */
  readonly telemetry?: Telemetry;
}

export interface RabbitmqReceiver extends Receiver {
  health(): TransportHealth;
}

const rules = {
  ...connectionRules,
  queue: text,
  queueType: oneOf("quorum", "classic"),
  prefetch: count,
  prefetchBytes: count,
  topology: oneOf("declare", "check", "none"),
  bindings: flag,
  route: callback,
  singleActiveConsumer: flag,
  unprefixed: flag,
  maxMessageBytes: count,
  backoff: callback,
  redeliveryWindowMs: positive,
  telemetry: callback,
};

/**
 * Receives from a queue of RabbitMQ. A retried message waits in `<queue>.wait.<ms>`, a parked one goes to
 * `<queue>.parked`; the broker confirms each before the original is acknowledged. If the connection is lost or the
 * queue is deleted, it starts again.
 *
 * @example
 * ```ts
 * const receiver = rabbitmqReceiver({ url: "amqp://localhost", queue: "billing" });
 * await createRouter("billing").on(OrderPlaced, async (order) => console.log(order.orderId)).start(receiver);
 * ```
 */
export function rabbitmqReceiver(options: RabbitmqReceiverOptions): RabbitmqReceiver {
  checkOptions("rabbitmqReceiver", options, rules, ["url"]);
  const { queueType = "quorum", prefetch = 100, topology = "declare", bindings = true, route = routeOf } = options;
  // Unless the user has decided about it.
  const splitsKeys = options.singleActiveConsumer === undefined;
  const { singleActiveConsumer = false, unprefixed = false } = options;
  const { maxMessageBytes = 16 * 1024 * 1024, prefetchBytes = 16 * 1024 * 1024 } = options;
  const { backoff = exponential({ initialMs: 100, maxMs: 30_000, jitter: 0.5 }), redeliveryWindowMs } = options;
  const runtime = runtimeWith();
  const telemetry = telling(options.telemetry);
  const watches = new Set<Watch>();
  let atRest: TransportHealth = { status: "idle", since: new Date() };

  /** The queues of a consumer, and how to make them, bound to its events. */
  function queuesOf({ consumer, events }: Pick<Subscription, "consumer" | "events">) {
    const queue = { queue: options.queue ?? consumer, queueType, singleActiveConsumer };
    const wanted = bindings ? events.map((event) => bound(route, event)) : [];
    async function make(connection: ChannelModel): Promise<void> {
      await prepareQueue(connection, queue, topology);
      if (bindings) await bindQueue(connection, queue.queue, wanted, topology);
    }
    return { queue, make };
  }

  /** One connection: prepares the queues and consumes, until the connection is lost or the signal is aborted. */
  async function receiveOnce(
    { queue, make }: ReturnType<typeof queuesOf>,
    watch: Watch,
    subscription: Subscription,
    signal: AbortSignal,
    attempt: Attempt,
  ): Promise<void> {
    const connection = await openConnection(options, signal);
    const links = createLinks(
      { ...options, connectionName: `${options.connectionName ?? "postbox"} aside` },
      { connected: watch.beside, lost: () => {}, closed: () => {} },
    );
    const consumeOptions = { queue, topology, prefetch, prefetchBytes, unprefixed, maxMessageBytes };
    const ready = () => {
      attempt.ready();
      watch.connected(connection);
      subscription.ready?.();
    };
    try {
      await make(connection);
      await consume(connection, links, consumeOptions, subscription, signal, { ready, lost: attempt.lost, telemetry });
    } finally {
      await Promise.all([links.close(), close(connection).catch(() => {})]);
    }
  }

  return {
    name: "rabbitmq",
    // A quorum queue limits deliveries, and parks a message at the limit.
    redelivery: queueType === "quorum" ? "counted" : "flagged",
    splitsKeys,
    ...(redeliveryWindowMs !== undefined && { redeliveryWindowMs }),
    async prepare(subscription) {
      const { make } = queuesOf(subscription);
      const connection = await openConnection(options);
      try {
        await make(connection);
      } finally {
        await close(connection).catch(() => {});
      }
    },
    async receive(subscription, signal) {
      const whose = `${options.connectionName ?? "postbox"} on ${options.queue ?? subscription.consumer}`;
      const watch = createWatch({ end: "receiver", whose, place: placeOf(options.url) }, telemetry);
      // If `route` throws, the connection is not lost.
      const queues = queuesOf(subscription);
      watches.add(watch);
      try {
        await stayConnected({ backoff, runtime, lost: watch.lost }, signal, (attempt) =>
          receiveOnce(queues, watch, subscription, signal, attempt),
        );
        watch.closed();
      } finally {
        watches.delete(watch);
        atRest = watch.health();
      }
    },
    health: () => worst([...watches].map((watch) => watch.health())) ?? atRest,
  };
}

/** Where an event is bound. If `route` throws, no retry succeeds, and the connection is not at fault. */
function bound(route: NonNullable<RabbitmqReceiverOptions["route"]>, event: Pick<Message, "topic" | "type">): Route {
  try {
    return checkedRoute(route, event);
  } catch (cause) {
    throw new ConfigError("option-invalid", (cause as Error).message, { cause, path: "route" });
  }
}
