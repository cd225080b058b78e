import { ConfigError } from "../errors.js";
import { type Draft, type MessageOptions, noOptions } from "../event/define-event.js";
import { currentLineage, type Lineage } from "../internal/lineage.js";
import { type Runtime, runtimeWith } from "../internal/runtime.js";
import { uuidv7Generator } from "../internal/uuidv7.js";
import { type Codec, createCodecs } from "../message/codec.js";
import { createMessage, type Extensions, type Message, type MessageInput } from "../message/message.js";
import { checkOptions, type OptionRule, object, text } from "../options.js";
import { checkSurvives } from "./survives-the-wire.js";

/** A ready-made message. Missing id, source and time are filled in; the data is sent unchanged. */
export type OutgoingMessage = Omit<MessageInput, "id" | "source"> & {
  readonly id?: string | undefined;
  readonly source?: string | undefined;
};

/** What a publisher adds to every message that does not set it itself. */
export interface PublishDefaults {
  readonly subject?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly extensions?: Extensions;
}

export interface MessageMakerOptions {
  readonly source: string;
  readonly defaults?: PublishDefaults;
  readonly codecs?: readonly Codec[];
  readonly maxMessageBytes?: number;
  readonly runtime?: Partial<Runtime>;
}

/** Makes the messages of a publisher. Throws if a message is invalid. */
export interface MessageMaker {
  /**
   * The message of a draft. Without a promise if the schema is synchronous: for a thousand at once, promises would cost
   * more than the messages.
   */
  encode(draft: Draft): Message | Promise<Message>;
  /** A ready-made message, completed. */
  complete(input: OutgoingMessage, lineage: Lineage | undefined): Message;
  /** A message that middleware has made anew. */
  checked(message: Message): Message;
}

const anything: OptionRule = { expected: "anything", test: () => true };

/** Values are checked as parts of the message; here only names that would go unnoticed. */
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

export function createMessageMaker(options: MessageMakerOptions): MessageMaker {
  const { source, defaults = {}, maxMessageBytes } = options;
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

  const encodeValidated = (draft: Draft, validated: unknown, lineage: Lineage | undefined) => {
    const { event, data, options: own } = draft;
    const contentType = own.contentType ?? event.contentType;
    const eventCodecs = codecs.preferring(event.codecs);
    const bytes = eventCodecs.encode(contentType, validated);
    // Before anything is awaited, so that key and bytes agree, even if the caller changes the data meanwhile.
    const message = complete(inputOf(draft, validated, contentType, bytes), lineage);
    const checking = checkSurvives(event, { given: data, validated, contentType, bytes }, eventCodecs);
    return checking === undefined ? message : checking.then(() => message);
  };

  return {
    complete,
    checked: (message) => createMessage(message, limits),
    encode(draft) {
      const { event, data, options: own } = draft;
      if (typeof event?.validate !== "function") throw notAnEvent("publishAll([event.message(data)])");
      if (own !== noOptions) checkOptions(`publishing ${event.type}`, own, messageRules);
      // That of the caller, who need not await the validation below.
      const lineage = currentLineage();
      const validated = event["~validate"](data);
      return validated instanceof Promise
        ? validated.then((value) => encodeValidated(draft, value, lineage))
        : encodeValidated(draft, validated, lineage);
    },
  };
}

export function notAnEvent(call: string): ConfigError {
  return new ConfigError(
    "event-invalid",
    `${call} takes what defineEvent returned; for anything else use send(message)`,
  );
}

/** The parts of a draft's message. */
function inputOf(
  { event, options: own }: Draft,
  validated: unknown,
  datacontenttype: string,
  data: Uint8Array,
): OutgoingMessage {
  const version: Extensions | undefined = event.version === undefined ? undefined : { dataversion: event.version };
  return {
    type: event.type,
    topic: event.topic,
    id: own.id,
    key: own.key ?? event.keyOf(validated),
    subject: own.subject,
    time: own.time,
    deliverAt: own.deliverAt,
    scheduleKey: own.scheduleKey,
    headers: own.headers,
    datacontenttype,
    dataschema: event.dataschema,
    extensions: merged(version, own.extensions),
    data,
  };
}

/** Merges two objects; the fields of `b` win. */
function merged<T extends object>(a: T | undefined, b: T | undefined): T | undefined {
  return a === undefined || b === undefined ? (a ?? b) : { ...a, ...b };
}
