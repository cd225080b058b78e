import { PostboxError, TransportDownError } from "../../errors.js";
import type { EventDefinition } from "../../event/define-event.js";
import { answered } from "../../internal/answer.js";
import { reasonOf } from "../../internal/reason-of.js";
import { runtimeWith } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import { callback, checkOptions, count, oneOf, positive } from "../../options.js";
import type { Telemetry } from "../../telemetry/events.js";
import { telling } from "../../telemetry/telling.js";
import type { Sender, TransportHealth } from "../../transport.js";
import { watchConnection } from "../connection-watch.js";
import { createLinkUse } from "../link-use.js";
import { type OnUnroutable, onUnroutableRule, unroutableOutcome } from "../unroutable.js";
import { within } from "../within.js";
import { connectionRules, type KafkaConnectionOptions, placeOf } from "./connection.js";
import type { KafkaContentMode } from "./kafka-message.js";
import { SenderLink } from "./sender-link.js";
import { createTopics, type TopicPlan, topicPlanRule } from "./topology.js";

/** Options of `kafkaSender`. */
export interface KafkaSenderOptions extends KafkaConnectionOptions {
  /** The topic of a message. Defaults to the message's own. */
  readonly route?: (message: Pick<Message, "topic" | "type">) => string;
  /**
   * What to do with a message whose topic is missing: `park` it after the relay's attempts, `drop` it, let it `wait`,
   * or a function that chooses by message. Defaults to `park`.
   */
  readonly onUnroutable?: OnUnroutable;
  /** How to encode an event: attributes as headers, or all of it as JSON. Defaults to `binary`. */
  readonly mode?: KafkaContentMode;
  /** How batches are compressed. Defaults to `none`. */
  readonly compression?: "none" | "gzip";
  /**
   * How long the brokers may take to store the messages of one call. After that, the connections are closed. A
   * relay's own, shorter `publishTimeoutMs` ends a call first. Defaults to 30,000.
   */
  readonly publishTimeoutMs?: number;
  /**
   * A larger record is rejected before it is sent, counted before compression. Kafka's own limit is 1 MiB unless it
   * was changed. Defaults to the topic's `max.message.bytes`.
   */
  readonly maxMessageBytes?: number;
  /** How `setup` makes topics. Defaults to one partition, with the brokers' default number of replicas. */
  readonly create?: TopicPlan;
  /**
   * Receives the events of its connections. Defaults to warnings and errors on the console; `silent` turns that off.
   */
  readonly telemetry?: Telemetry;
}

export interface KafkaSender extends Sender {
  /** Makes the topics of these events, as the option `create` says. A topic that exists is left as it is. */
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
  compression: oneOf("none", "gzip"),
  publishTimeoutMs: positive,
  maxMessageBytes: count,
  create: topicPlanRule,
  telemetry: callback,
};

/**
 * Sends to Kafka with an idempotent producer: a message is `sent` when all in-sync replicas of its partition have it. A
 * key goes to the partition that Java's default partitioner chooses, and keeps its order there. A partition without a
 * leader delays only its own messages. It makes no topics, except by `setup`. It connects with the first message, and
 * reconnects after a loss.
 *
 * @example
 * ```ts
 * const sender = kafkaSender({ url: "kafka://localhost:9092" });
 * await createRelay(store, sender).start();
 * ```
 */
export function kafkaSender(options: KafkaSenderOptions): KafkaSender {
  checkOptions("kafkaSender", options, rules, ["url"]);
  const { publishTimeoutMs = 30_000, onUnroutable = "park", create = { partitions: 1 } } = options;
  const route = checkedRoute(options.route);
  const place = placeOf(options.url);
  const runtime = runtimeWith();
  const watch = watchConnection(
    { transport: "kafka", end: "sender", whose: options.clientId ?? "postbox", place },
    telling(options.telemetry),
  );
  const link = new SenderLink(options, {
    route,
    runtime,
    watch,
    unrouted: (message, error) => unroutableOutcome(onUnroutable, message, error, runtime),
  });
  const use = createLinkUse(link, runtime);

  async function sendBatch(...[messages, settled, signal]: Parameters<Sender["send"]>): Promise<void> {
    const batch = link.send(messages, settled);
    try {
      const done = await within(
        runtime,
        signal,
        batch.done.then(() => true as const),
        publishTimeoutMs,
      );
      if (done) return;
      const missing = `${batch.unreported} of ${messages.length} messages`;
      const text = `${place} has not confirmed ${missing} within ${publishTimeoutMs} ms`;
      link.giveUp();
      throw batch.produced.size > 0
        ? new PostboxError("publish-timeout", text)
        : new TransportDownError("connect", text);
    } finally {
      link.end(batch);
    }
  }

  return {
    name: "kafka",
    keepsOrder: true,
    scopeOf: (message) => link.scopeOf(message),

    async connect(signal) {
      use.reopen();
      await within(runtime, signal, link.connect());
    },

    async send(messages, settled, signal) {
      signal.throwIfAborted();
      if (messages.length > 0) await use.during(() => sendBatch(messages, settled, signal));
    },

    async setup(events) {
      const cluster = await link.connect();
      await createTopics(cluster, events.map(route), create);
    },

    health: () => watch.health(),
    close: () => use.close(),
    [Symbol.asyncDispose]: () => use.close(),
  };
}

/** The user's route. If it throws or returns no topic, the message is at fault, not the broker. */
function checkedRoute(route: KafkaSenderOptions["route"]): NonNullable<KafkaSenderOptions["route"]> {
  if (route === undefined) return ({ topic }) => topic;
  return (message) => {
    let topic: unknown;
    try {
      topic = answered(route(message));
    } catch (cause) {
      const text = `'route' threw for type ${message.type}: ${reasonOf(cause)}; correct 'route'`;
      throw new PostboxError("message-invalid", text, { cause });
    }
    if (typeof topic === "string" && topic !== "") return topic;
    throw new PostboxError("message-invalid", `'route' answered no topic for type ${message.type}; answer its name`);
  };
}
