import { type Backoff, exponential } from "../../backoff.js";
import { ConfigError, PostboxError } from "../../errors.js";
import { runtimeWith, sleep } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import { callback, checkOptions, count, flag, oneOf, positive, text } from "../../options.js";
import type { Receiver } from "../../transport.js";
import { connectionRules, openConnection, type RabbitmqConnectionOptions } from "./connection.js";
import { consume } from "./consume.js";
import { type Route, routeOf } from "./route.js";
import { bindQueue, prepareQueue, type Topology } from "./topology.js";

export interface RabbitmqReceiverOptions extends RabbitmqConnectionOptions {
  /** Receivers of one queue share its messages; every queue gets its own copy. Defaults to the consumer's name. */
  readonly queue?: string;
  /** Defaults to `quorum`. */
  readonly queueType?: "quorum" | "classic";
  /** The most deliveries that are unsettled at a time. Defaults to 100. */
  readonly prefetch?: number;
  /** Whether to make the queues, only to look for them, or to leave them alone. Defaults to `declare`. */
  readonly topology?: Topology;
  /** Whether to bind the queue to what the consumer has handlers for, and to make the exchanges for that. Defaults to true. */
  readonly bindings?: boolean;
  /** Where the events of the bindings go. Defaults to what a sender does by default. */
  readonly route?: (event: Pick<Message, "topic" | "type">) => Route;
  /** Gives the queue the exchange `<queue>.dlx`, for what the broker itself gives up. Defaults to false. */
  readonly deadLetter?: boolean;
  /** Reads extensions from headers without a prefix, as older publishers write them. Defaults to false. */
  readonly unprefixed?: boolean;
  /** A larger message is parked. Defaults to 16 MiB. */
  readonly maxMessageBytes?: number;
  /** The pause before it connects again. Defaults to one that grows to 30 s, with jitter. */
  readonly backoff?: Backoff;
  /** How long after it was made a message may still be delivered again; an inbox checks its own retention against it. Defaults to unknown. */
  readonly redeliveryWindowMs?: number;
  /** Told why a connection was lost, or could not be had; it is tried again. Defaults to nobody. */
  readonly onFailure?: (error: Error) => void;
}

const rules = {
  ...connectionRules,
  queue: text,
  queueType: oneOf("quorum", "classic"),
  prefetch: count,
  topology: oneOf("declare", "check", "none"),
  bindings: flag,
  route: callback,
  deadLetter: flag,
  unprefixed: flag,
  maxMessageBytes: count,
  backoff: callback,
  redeliveryWindowMs: positive,
  onFailure: callback,
};

/**
 * Receives from a queue of RabbitMQ. What is retried waits in `<queue>.wait.<ms>`, what is parked goes to `<queue>.parked`, each confirmed
 * before it is acked. When the connection is lost, or the queue deleted, it begins anew.
 */
export function rabbitmqReceiver(options: RabbitmqReceiverOptions): Receiver {
  checkOptions("rabbitmqReceiver", options, rules, ["url"]);
  const { queueType = "quorum", prefetch = 100, topology = "declare", bindings = true, route = routeOf } = options;
  const { deadLetter = false, unprefixed = false, maxMessageBytes = 16 * 1024 * 1024 } = options;
  const { backoff = exponential({ initialMs: 100, maxMs: 30_000, jitter: 0.5 }), redeliveryWindowMs } = options;
  const runtime = runtimeWith();

  return {
    name: "rabbitmq",
    ...(redeliveryWindowMs !== undefined && { redeliveryWindowMs }),
    async receive(subscription, signal) {
      const queue = { queue: options.queue ?? subscription.consumer, queueType, deadLetter };
      for (let failures = 0; !signal.aborted; ) {
        try {
          const connection = await openConnection(options);
          try {
            await prepareQueue(connection, queue, topology);
            if (bindings) await bindQueue(connection, queue.queue, subscription.events.map(route), topology);
            failures = 0;
            await consume(connection, { queue, topology, prefetch, unprefixed, maxMessageBytes }, subscription, signal);
          } finally {
            await connection.close().catch(() => {});
          }
        } catch (error) {
          if (error instanceof ConfigError) throw error;
          options.onFailure?.(PostboxError.from(error, "transport-down"));
        }
        if (!signal.aborted) await sleep(runtime, backoff(++failures, runtime.random), signal);
      }
    },
  };
}
