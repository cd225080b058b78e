import type { Message } from "postbox";
import { createMessage, type MessageInput } from "postbox/store";

/**
 * A small valid message with this id, and any other attributes that you set.
 *
 * @example
 * ```ts
 * const message = testMessage("1", { key: "order-1" });
 * ```
 */
export function testMessage(id: string, more: Partial<MessageInput> = {}): Message {
  return createMessage({
    type: "testkit.facts.v1.Happened",
    source: "/testkit",
    id,
    data: new TextEncoder().encode(JSON.stringify({ id })),
    ...more,
  });
}

/**
 * Makes `count` messages with the ids `prefix-0`, `prefix-1` and so on.
 *
 * @example
 * ```ts
 * const messages = testMessages("order", 100);
 * ```
 */
export function testMessages(prefix: string, count: number, more: Partial<MessageInput> = {}): Message[] {
  return Array.from({ length: count }, (_, index) => testMessage(`${prefix}-${index}`, more));
}

/**
 * A message as plain data. Equal bytes are equal, whatever class of array they have.
 *
 * @example
 * ```ts
 * expect(received.map(comparable)).toEqual(sent.map(comparable));
 * ```
 */
export function comparable(message: Message): object {
  return { ...message, data: Buffer.from(message.data).toString("base64") };
}
