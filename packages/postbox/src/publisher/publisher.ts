import { ConfigError } from "../errors.js";
import {
  type DataIn,
  type Draft,
  type EventDefinition,
  type MessageOptions,
  noOptions,
  type Published,
} from "../event/define-event.js";
import { currentLineage, type Lineage } from "../internal/lineage.js";
import { type Runtime, runtimeWith } from "../internal/runtime.js";
import { uuidv7Generator } from "../internal/uuidv7.js";
import { type Codec, codecList, createCodecs } from "../message/codec.js";
import { createMessage, type Extensions, type Message, type MessageInput } from "../message/message.js";
import { checkOptions, count, list, type OptionRule, object, text } from "../options.js";
import { composePublish, type PublishMiddleware, type PublishNext } from "./publish-middleware.js";
import { checkSurvives } from "./survives-the-wire.js";

/** A ready-made message: id, source and time are filled in where they are missing, the data goes out untouched. */
export type OutgoingMessage = Omit<MessageInput, "id" | "source"> & {
  readonly id?: string | undefined;
  readonly source?: string | undefined;
};

/** The typed front of whatever takes messages: a broker (`createPublisher`) or your transaction (`outbox.in(tx)`). */
export interface Publisher {
  /** Validates, encodes and publishes one event. */
  publish<E extends EventDefinition>(event: E, data: DataIn<E>, options?: MessageOptions): Promise<Published>;
  /** Publishes many at once, in this order; back come the ids of what middleware let through, in the same order. */
  publishAll(drafts: readonly Draft[]): Promise<readonly Published[]>;
  /** Publishes a message that is no defined event: nothing is validated but the envelope. */
  send(message: OutgoingMessage): Promise<Published>;
}

/** What a publisher adds to every message that does not say otherwise. */
export interface PublishDefaults {
  readonly subject?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly extensions?: Extensions;
}

export interface PublisherOptions {
  /** The CloudEvents source of everything published here: a URI reference that names your service, such as `/orders`. */
  readonly source: string;
  /** For every message that does not set them itself; headers and extensions are merged by name. Defaults to none. */
  readonly defaults?: PublishDefaults;
  /** The first is the outermost. Defaults to none. */
  readonly middleware?: readonly PublishMiddleware[];
  /** Beside JSON and bytes, which are built in. Defaults to none. */
  readonly codecs?: readonly Codec[];
  /** A larger message is refused before it is stored or sent. At most 128 MiB, which is what a store takes. Defaults to 1 MiB. */
  readonly maxMessageBytes?: number;
  /** @experimental Time, chance and failpoints. Defaults to the system's. */
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

const anything: OptionRule = { expected: "anything", test: () => true };

/** Their values are checked as parts of the message; here only names that would go unnoticed. */
const messageRules = {
  id: anything,
  key: anything,
  subject: anything,
  time: anything,
  headers: object,
  extensions: object,
  contentType: text,
  deliverAt: anything,
  scheduleKey: anything,
} satisfies Record<keyof MessageOptions, OptionRule>;

/**
 * Completes drafts with what `options` say. Checked and built once; the result then makes a publisher for each place
 * that messages go to, which costs next to nothing (one per transaction).
 */
export function publisherTo(
  owner: string,
  options: PublisherOptions,
  moreRules: Readonly<Record<string, OptionRule>> = {},
): (sink: PublishNext) => Publisher {
  checkOptions(owner, options, { ...rules, ...moreRules }, ["source"]);
  const { source, defaults = {}, middleware = [], maxMessageBytes } = options;
  const runtime = runtimeWith(options.runtime);
  const codecs = createCodecs(options.codecs);
  const nextId = uuidv7Generator(runtime);
  const limits = maxMessageBytes === undefined ? {} : { maxMessageBytes };

  const complete = (input: OutgoingMessage, lineage: Lineage | undefined): Message =>
    createMessage(
      {
        type: input.type,
        id: input.id ?? nextId(),
        source: input.source ?? source,
        time: input.time ?? new Date(runtime.now()),
        subject: input.subject ?? defaults.subject,
        topic: input.topic,
        key: input.key,
        deliverAt: input.deliverAt,
        scheduleKey: input.scheduleKey,
        datacontenttype: input.datacontenttype,
        dataschema: input.dataschema,
        headers: merged(defaults.headers, input.headers),
        extensions: merged(merged(defaults.extensions, lineage), input.extensions),
        data: input.data,
      },
      limits,
    );

  /** Without a promise where the schema needs none: a thousand at once would cost more in promises than in messages. */
  const encode = (draft: Draft): Message | Promise<Message> => {
    const { event, data, options: own } = draft;
    if (typeof event?.validate !== "function") throw notAnEvent("publishAll([event.message(data)])");
    if (own !== noOptions) checkOptions(`publishing ${event.type}`, own, messageRules);
    // That of the call, which need not wait for the validation below.
    const lineage = currentLineage();
    const validated = event["~validate"](data);
    return validated instanceof Promise
      ? validated.then((value) => encodeValidated(draft, value, lineage))
      : encodeValidated(draft, validated, lineage);
  };

  const encodeValidated = (
    { event, data, options: own }: Draft,
    validated: unknown,
    lineage: Lineage | undefined,
  ): Message | Promise<Message> => {
    const contentType = own.contentType ?? event.contentType;
    const eventCodecs = codecs.preferring(event.codecs);
    const bytes = eventCodecs.encode(contentType, validated);
    const version: Extensions | undefined = event.version === undefined ? undefined : { dataversion: event.version };
    // Before anything is waited for: its key and its bytes are of one moment, whatever the caller does with the data meanwhile.
    const message = complete(
      {
        type: event.type,
        topic: event.topic,
        id: own.id,
        key: own.key ?? event.keyOf(validated),
        subject: own.subject,
        time: own.time,
        deliverAt: own.deliverAt,
        scheduleKey: own.scheduleKey,
        headers: own.headers,
        datacontenttype: contentType,
        dataschema: event.dataschema,
        extensions: merged(version, own.extensions),
        data: bytes,
      },
      lineage,
    );
    const checking = checkSurvives(event, { given: data, validated, contentType, bytes }, eventCodecs);
    return checking === undefined ? message : checking.then(() => message);
  };

  return (sink) => {
    const publishMessages = async (messages: readonly Message[]): Promise<readonly Published[]> => {
      if (messages.length === 0) return [];
      if (middleware.length === 0) {
        await sink(messages);
        return messages.map(({ id }) => ({ id }));
      }
      const known = new Set(messages);
      let accepted = messages;
      // What a middleware made anew is checked again: nothing unchecked reaches a store or a broker.
      const last: PublishNext = (out) => {
        accepted = out.map((message) => (known.has(message) ? message : createMessage(message, limits)));
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
  };
}

function isMessage(encoded: Message | Promise<Message>): encoded is Message {
  return !(encoded instanceof Promise);
}

/** Both by name; what `b` has goes before what `a` has. */
function merged<T extends object>(a: T | undefined, b: T | undefined): T | undefined {
  return a === undefined || b === undefined ? (a ?? b) : { ...a, ...b };
}

function notAnEvent(call: string): ConfigError {
  return new ConfigError(
    "event-invalid",
    `${call} takes what defineEvent returned; for anything else use send(message)`,
  );
}
