import { ConfigError } from "../errors.js";
import type { DataIn, Draft, EventDefinition, MessageOptions, Published } from "../event/define-event.js";
import { currentLineage } from "../internal/lineage.js";
import type { Runtime } from "../internal/runtime.js";
import { type Codec, codecList } from "../message/codec.js";
import type { Message } from "../message/message.js";
import { checkOptions, count, list, type OptionRule, object, text } from "../options.js";
import {
  createMessageMaker,
  type MessageMaker,
  notAnEvent,
  type OutgoingMessage,
  type PublishDefaults,
} from "./message-maker.js";
import { composePublish, type PublishMiddleware, type PublishNext } from "./publish-middleware.js";

/** Publishes to a broker (`createPublisher`) or into your transaction (`outbox.in(tx)`). */
export interface Publisher {
  /** Validates, encodes and publishes one event. */
  publish<E extends EventDefinition>(event: E, data: DataIn<E>, options?: MessageOptions): Promise<Published>;
  /**
   * Publishes several messages, in this order. Returns the ids of those that middleware let through, in the same order.
   */
  publishAll(drafts: readonly Draft[]): Promise<readonly Published[]>;
  /** Publishes a message that is no defined event. Only the envelope is validated. */
  send(message: OutgoingMessage): Promise<Published>;
}

/** Options that every publisher has. */
export interface PublisherOptions {
  /**
   * The CloudEvents `source` of everything published here: a URI reference that names your service, such as `/orders`.
   */
  readonly source: string;
  /** For every message that does not set them itself. Headers and extensions are merged by name. Defaults to none. */
  readonly defaults?: PublishDefaults;
  /** The first is the outermost. Defaults to none. */
  readonly middleware?: readonly PublishMiddleware[];
  /** In addition to JSON and bytes, which are built in. Defaults to none. */
  readonly codecs?: readonly Codec[];
  /**
   * A larger message is refused before it is stored or sent. At most 128 MiB, the limit of stores. Defaults to 1 MiB.
   */
  readonly maxMessageBytes?: number;
  /** @experimental Time, randomness and failpoints. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

const rules: Readonly<Record<string, OptionRule>> = {
  source: text,
  defaults: object,
  middleware: list,
  codecs: codecList,
  maxMessageBytes: {
    expected: "a whole number from 1 to 134,217,728 (128 MiB)",
    test: (value) => count.test(value) && (value as number) <= 128 * 1024 * 1024,
  },
  runtime: object,
};

/**
 * Prepares publishers. The options are checked once; the result makes a publisher for each destination, such as one
 * per transaction, at next to no cost.
 */
export function publisherTo(
  owner: string,
  options: PublisherOptions,
  moreRules: Readonly<Record<string, OptionRule>> = {},
): PublisherTo {
  checkOptions(owner, options, { ...rules, ...moreRules }, ["source"]);
  const { middleware = [] } = options;
  const maker = createMessageMaker(options);
  return {
    into: (sink) => publisherInto(sink, maker, middleware),
    messageNow(event, data, messageOptions) {
      if (typeof event?.message !== "function") throw notAnEvent("publishSync(event, data)");
      if (middleware.length > 0) throw notSynchronous(event.type, "the outbox has middleware, which is asynchronous");
      const encoded = maker.encode(event.message(data, messageOptions));
      if (isMessage(encoded)) return encoded;
      // Nobody awaits it: the error below is what counts.
      encoded.catch(() => {});
      throw notSynchronous(event.type, "its schema or codec answers with a promise");
    },
  };
}

/** Makes publishers with the same options. */
export interface PublisherTo {
  into(sink: PublishNext): Publisher;
  /** The message of an event, at once. Throws `option-invalid` if that takes a promise. */
  messageNow<E extends EventDefinition>(event: E, data: DataIn<E>, options?: MessageOptions): Message;
}

function notSynchronous(type: string, why: string): ConfigError {
  const text = `publishSync cannot publish ${type}: ${why}; publish it in store.transaction(...), with await`;
  return new ConfigError("option-invalid", text, { path: "publishSync" });
}

function publisherInto(
  sink: PublishNext,
  { complete, encode, checked }: MessageMaker,
  middleware: readonly PublishMiddleware[],
): Publisher {
  const publishMessages = async (messages: readonly Message[]): Promise<readonly Published[]> => {
    if (messages.length === 0) return [];
    if (middleware.length === 0) {
      await sink(messages);
      return messages.map(({ id }) => ({ id }));
    }
    const known = new Set(messages);
    let accepted = messages;
    // What a middleware made anew is checked again, so nothing unchecked reaches a store or a broker.
    const last: PublishNext = (out) => {
      accepted = out.map((message) => (known.has(message) ? message : checked(message)));
      return sink(accepted);
    };
    await composePublish(middleware, last)(messages);
    return accepted.map(({ id }) => ({ id }));
  };
  const publishMessage = async (message: Message): Promise<Published> => {
    if (middleware.length > 0) return (await publishMessages([message]))[0] ?? { id: message.id };
    await sink([message]);
    return { id: message.id };
  };
  return {
    publish: async (event, data, messageOptions) => {
      if (typeof event?.message !== "function") throw notAnEvent("publish(event, data)");
      const encoded = encode(event.message(data, messageOptions));
      return publishMessage(isMessage(encoded) ? encoded : await encoded);
    },
    publishAll: async (drafts) => {
      const messages = drafts.map(encode);
      return publishMessages(messages.every(isMessage) ? messages : await Promise.all(messages));
    },
    send: async (message) => publishMessage(complete(message, currentLineage())),
  };
}

function isMessage(encoded: Message | Promise<Message>): encoded is Message {
  return !(encoded instanceof Promise);
}
