import { ConfigError } from "../errors.js";
import type { DataIn, Draft, EventDefinition, MessageOptions } from "../event/define-event.js";
import { currentLineage, type Lineage } from "../internal/lineage.js";
import { type Runtime, runtimeWith } from "../internal/runtime.js";
import { uuidv7Generator } from "../internal/uuidv7.js";
import { type Codec, createCodecs } from "../message/codec.js";
import { createMessage, type Extensions, type Message, type MessageInput } from "../message/message.js";
import { checkOptions, count, list, type OptionRule, object, text } from "../options.js";
import { composePublish, type PublishMiddleware, type PublishNext } from "./publish-middleware.js";
import { checkSurvives } from "./survives-the-wire.js";

/** The id of a published message. */
export interface Published {
  readonly id: string;
}

/** A ready-made message: id, source and time are filled in where they are missing, the data goes out untouched. */
export type OutgoingMessage = Omit<MessageInput, "id" | "source"> & { readonly id?: string; readonly source?: string };

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
  /** A larger message is refused before it is stored or sent. Defaults to 1 MiB. */
  readonly maxMessageBytes?: number;
  /** @experimental Time, chance and failpoints. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

const rules: Readonly<Record<string, OptionRule>> = {
  source: text,
  defaults: object,
  middleware: list,
  codecs: list,
  maxMessageBytes: count,
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
        ...input,
        id: input.id ?? nextId(),
        source: input.source ?? source,
        time: input.time ?? new Date(runtime.now()),
        subject: input.subject ?? defaults.subject,
        headers: { ...defaults.headers, ...input.headers },
        extensions: { ...defaults.extensions, ...lineage, ...input.extensions },
      },
      limits,
    );

  const encode = async ({ event, data, options: own }: Draft): Promise<Message> => {
    if (typeof event?.validate !== "function") throw notAnEvent("publishAll([event.message(data)])");
    checkOptions(`publishing ${event.type}`, own, messageRules);
    // That of the call, which need not wait for the validation below.
    const lineage = currentLineage();
    const validated = await event.validate(data);
    const contentType = own.contentType ?? event.contentType;
    const { contentType: _, ...attributes } = own;
    const bytes = codecs.encode(contentType, validated);
    await checkSurvives(event, { given: data, validated, contentType, bytes }, codecs);
    const input = {
      ...attributes,
      type: event.type,
      topic: event.topic,
      key: own.key ?? event.keyOf(validated),
      datacontenttype: contentType,
      dataschema: event.dataschema,
      extensions: { ...(event.version === undefined ? {} : { dataversion: event.version }), ...own.extensions },
      data: bytes,
    };
    return complete(input, lineage);
  };

  return (sink) => {
    const publishMessages = async (messages: readonly Message[]): Promise<readonly Published[]> => {
      const known = new Set(messages);
      let accepted = messages;
      // What a middleware made anew is checked again: nothing unchecked reaches a store or a broker.
      const last: PublishNext = (out) => {
        accepted = out.map((message) => (known.has(message) ? message : createMessage(message, limits)));
        return sink(accepted);
      };
      if (messages.length > 0) await composePublish(middleware, last)(messages);
      return accepted.map(({ id }) => ({ id }));
    };
    const publishMessage = async (message: Message): Promise<Published> =>
      (await publishMessages([message]))[0] ?? { id: message.id };
    return {
      publish: async (event, data, messageOptions) => {
        if (typeof event?.message !== "function") throw notAnEvent("publish(event, data)");
        return publishMessage(await encode(event.message(data, messageOptions)));
      },
      publishAll: async (drafts) => publishMessages(await Promise.all(drafts.map(encode))),
      send: async (message) => publishMessage(complete(message, currentLineage())),
    };
  };
}

function notAnEvent(call: string): ConfigError {
  return new ConfigError(
    "event-invalid",
    `${call} takes what defineEvent returned; for anything else use send(message)`,
  );
}
