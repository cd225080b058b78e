import type { EventDefinition, Message } from "postbox";
import type { MessageInput } from "postbox/transport";
import type { Consumer } from "./consume.js";
import { type ConsumeOptions, type Stage, testEvent } from "./transport-facts.js";

/** A topic that is divided into streams, and the queue of a group that reads it. */
export interface DividedTopic {
  readonly queue: string;
  readonly event: EventDefinition;
  /** A message of the topic. */
  message(id: string, more?: Partial<MessageInput>): Message;
  /** Starts a member of the group. */
  consume(options?: ConsumeOptions): Consumer;
  /**
   * The stream of each message, by id, as another group receives them. `count` is the number of messages that were sent
   * so far.
   */
  streamsById(count: number): Promise<ReadonlyMap<string, string>>;
}

/** Makes a new topic for a fact; `name` distinguishes several of one fact. */
export async function dividedTopic(stage: Stage, streams: number, name = "divided"): Promise<DividedTopic> {
  const event = testEvent(`${stage.event.topic}.${name}`, "Happened");
  const queue = `${name}-${stage.queue}`;
  await stage.harness.bind(queue, [event], { streams });
  const consume = (options: ConsumeOptions = {}) => stage.consume({ queue, events: [event], ...options });
  return {
    queue,
    event,
    message: (id, more = {}) => stage.message(id, { type: event.type, topic: event.topic, ...more }),
    consume,
    async streamsById(count) {
      const other = consume({ queue: `other-${queue}` });
      const found = new Map<string, string>();
      while (found.size < count) {
        const { message, stream = "", ack } = await other.next();
        found.set(message.id, stream);
        await ack();
      }
      await other.abandon();
      return found;
    },
  };
}

/** Messages with enough keys to reach each stream, to be sent after all others. */
export function lastOfEachStream({ message }: Pick<DividedTopic, "message">): Message[] {
  return Array.from({ length: 20 }, (_, n) => message(`last-${n}`, { key: `k${n}` }));
}

/** `count` messages with this many keys in turn, each named after its key and its number in the key. */
export function keyedMessages({ message }: Pick<DividedTopic, "message">, count: number, keys: number): Message[] {
  return Array.from({ length: count }, (_, n) => {
    const key = `k${n % keys}`;
    return message(`${key}-${Math.floor(n / keys)}`, { key, data: Buffer.from(String(n)) });
  });
}
