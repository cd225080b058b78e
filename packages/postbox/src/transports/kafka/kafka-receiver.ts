import { type Backoff, exponential } from "../../backoff.js";
import { runtimeWith } from "../../internal/runtime.js";
import { callback, checkOptions, count, oneOf, positive, text } from "../../options.js";
import type { Telemetry } from "../../telemetry/events.js";
import { telling } from "../../telemetry/telling.js";
import type { Receiver, Subscription, TransportHealth } from "../../transport.js";
import { type ConnectionWatch, watchConnection, worst } from "../connection-watch.js";
import { type Attempt, stayConnected } from "../stay-connected.js";
import { connectionRules, type KafkaConnectionOptions, openCluster, placeOf } from "./connection.js";
import { GroupRun } from "./group-run.js";
import type { FromForeign } from "./kafka-message.js";
import { parkedTopic } from "./parking.js";
import { createTopics, type TopicPlan, topicPlanRule } from "./topology.js";

/** Options of `kafkaReceiver`. */
export interface KafkaReceiverOptions extends KafkaConnectionOptions {
  /** Receivers of one group share the partitions; every group gets every message. Defaults to the consumer's name. */
  readonly group?: string;
  /** The most unsettled deliveries of a partition at a time. Defaults to 100. */
  readonly prefetch?: number;
  /**
   * The most bytes of unsettled deliveries of a partition at a time; a larger message is delivered alone. Defaults to
   * 16 MiB.
   */
  readonly prefetchBytes?: number;
  /** Whether topics must exist, or are made as `create` says. Defaults to `check`. */
  readonly topology?: "check" | "create";
  /**
   * With `topology: "create"`: how topics are made that are missing, those for parked messages included. Defaults to
   * one partition, with the brokers' default number of replicas.
   */
  readonly create?: TopicPlan;
  /** Maps records without attributes of CloudEvents. Without it they are parked. */
  readonly fromForeign?: FromForeign;
  /** A message with a larger value is parked. Defaults to 16 MiB. */
  readonly maxMessageBytes?: number;
  /**
   * After this time without a heartbeat, others get this member's partitions. Brokers allow 6,000 to 1,800,000 by
   * default. Defaults to 10,000.
   */
  readonly sessionTimeoutMs?: number;
  /** How often it sends a heartbeat, which is also how soon it learns of a rebalance. Defaults to 1,000. */
  readonly heartbeatMs?: number;
  /** The pause before it connects again after its group was lost. Defaults to one that grows to 30 s, with jitter. */
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

export interface KafkaReceiver extends Receiver {
  health(): TransportHealth;
}

const rules = {
  ...connectionRules,
  group: text,
  prefetch: count,
  prefetchBytes: count,
  topology: oneOf("check", "create"),
  create: topicPlanRule,
  fromForeign: callback,
  maxMessageBytes: count,
  sessionTimeoutMs: positive,
  heartbeatMs: positive,
  backoff: callback,
  redeliveryWindowMs: positive,
  telemetry: callback,
};

/**
 * Receives topics of Kafka as a member of a consumer group. A new group begins with the oldest message. Partitions are
 * divided cooperatively: a member keeps those that stay with it when others join or leave. Offsets are committed when
 * everything below them is settled; a message whose process ended without an outcome is flagged when it is delivered
 * again. Without an inbox, a failed message is retried here, and parked in `<topic>.parked` in the end. A record that
 * cannot be read as a message goes there, too.
 *
 * @example
 * ```ts
 * const receiver = kafkaReceiver({ url: "kafka://localhost:9092", group: "billing" });
 * const router = createRouter("billing")
 *   .use(transaction(store))
 *   .use(inbox(store))
 *   .on(OrderPlaced, async (order) => console.log(order.orderId));
 * await router.start(receiver);
 * ```
 */
export function kafkaReceiver(options: KafkaReceiverOptions): KafkaReceiver {
  checkOptions("kafkaReceiver", options, rules, ["url"]);
  const { prefetch = 100, prefetchBytes = 16 * 1024 * 1024, maxMessageBytes = 16 * 1024 * 1024 } = options;
  const { sessionTimeoutMs = 10_000, heartbeatMs = 1_000, topology = "check", fromForeign } = options;
  const { backoff = exponential({ initialMs: 100, maxMs: 30_000, jitter: 0.5 }), redeliveryWindowMs } = options;
  const create = topology === "create" ? (options.create ?? { partitions: 1 }) : undefined;
  const place = placeOf(options.url);
  const runtime = runtimeWith();
  const telemetry = telling(options.telemetry);
  const watches = new Set<ConnectionWatch>();
  let atRest: TransportHealth = { status: "idle", since: new Date() };

  async function prepare({ events }: Pick<Subscription, "events">): Promise<void> {
    if (create === undefined) return;
    const cluster = await openCluster(options, () => {});
    try {
      const topics = events.flatMap(({ topic }) => [topic, parkedTopic(topic)]);
      await createTopics(cluster, topics, create);
    } finally {
      cluster.close();
    }
  }

  /** One membership, until it is lost or the signal is aborted. */
  async function receiveOnce(
    group: string,
    watch: ConnectionWatch,
    subscription: Subscription,
    signal: AbortSignal,
    attempt: Attempt,
  ): Promise<void> {
    await prepare(subscription);
    const alive = () => {
      if (watch.health().status !== "connected") watch.connected();
    };
    const failing = (error: Parameters<ConnectionWatch["lost"]>[0]) => {
      if (watch.health().status === "connected") watch.lost(error);
    };
    const cluster = await openCluster(options, () => {});
    const limits = { prefetch, prefetchBytes };
    const about = { group, place, sessionTimeoutMs, heartbeatMs, limits, maxMessageBytes, runtime, telemetry };
    const more = { ...(fromForeign && { fromForeign }), ...(create && { create }) };
    let isReady = false;
    const run = new GroupRun(cluster, { ...about, ...more }, subscription, {
      ready() {
        if (isReady) return;
        isReady = true;
        attempt.ready();
        alive();
        subscription.ready?.();
      },
      alive,
      failing,
    });
    await run.run(signal);
  }

  return {
    name: "kafka",
    settles: "in-order",
    setsAside: true,
    selects: "topic",
    ...(redeliveryWindowMs !== undefined && { redeliveryWindowMs }),
    prepare,
    async receive(subscription, signal) {
      const group = options.group ?? subscription.consumer;
      const whose = `${options.clientId ?? "postbox"} in ${group}`;
      const watch = watchConnection({ transport: "kafka", end: "receiver", whose, place }, telemetry);
      watches.add(watch);
      try {
        await stayConnected({ backoff, runtime, lost: watch.lost }, signal, (attempt) =>
          receiveOnce(group, watch, subscription, signal, attempt),
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
